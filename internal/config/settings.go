package config

import (
	"log/slog"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// Format is how log lines are written.
type Format string

const (
	// FormatText writes key=value pairs.
	FormatText Format = "text"
	// FormatJSON writes one JSON object per line.
	FormatJSON Format = "json"
)

// Settings is everything one process needs, understood and checked.
type Settings struct {
	// Proxy has every value that a file can set, defaults included; its
	// logger, meter and network seams are left to the caller.
	Proxy proxy.Config
	// LogLevel is the least level that is logged; default info.
	LogLevel slog.Level
	// LogFormat; default FormatText.
	LogFormat Format
	// MetricsListen is the host:port of the admin endpoints; empty: none.
	MetricsListen string
	// Notes say, for a person, what is allowed but may not be meant.
	Notes []string
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// Defaults, written out so that what is in force can be shown.
const (
	defaultListen           = "127.0.0.1:9092"
	defaultFenceID          = 0x4f66667365740001
	defaultViewMaxAge       = time.Minute
	defaultAdmissionWait    = 50 * time.Millisecond
	defaultClockSkew        = 10 * time.Second
	defaultIdleViews        = 100_000
	defaultMaxFrame         = 100 * mib
	defaultMaxDecompressed  = 64 * mib
	defaultMaxPending       = 1024
	defaultMaxRewritten     = 64 * mib
	defaultMaxHeld          = mib
	defaultMaxConnections   = 10_000
	defaultDialTimeout      = 5 * time.Second
	defaultHandshakeTimeout = 30 * time.Second
	defaultDrainTimeout     = 10 * time.Second
)

func defaults() *Settings {
	return &Settings{
		Proxy: proxy.Config{
			Listen:               defaultListen,
			FenceID:              defaultFenceID,
			ViewMaxAge:           defaultViewMaxAge,
			AdmissionWait:        defaultAdmissionWait,
			ClockSkew:            defaultClockSkew,
			IdleViews:            defaultIdleViews,
			MaxFrameBytes:        defaultMaxFrame,
			MaxDecompressedBytes: defaultMaxDecompressed,
			MaxPendingRequests:   defaultMaxPending,
			MaxRewrittenBytes:    defaultMaxRewritten,
			MaxHeldBytes:         defaultMaxHeld,
			MaxConnections:       defaultMaxConnections,
			DialTimeout:          defaultDialTimeout,
			HandshakeTimeout:     defaultHandshakeTimeout,
			DrainTimeout:         defaultDrainTimeout,
		},
		LogFormat: FormatText,
	}
}
