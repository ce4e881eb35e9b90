package config

import (
	"fmt"
	"log/slog"

	"github.com/offsetproxy/offsetproxy/internal/tlsfiles"
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
	// Proxy is in force (see proxy.Config.InForce), defaults included; its
	// logger, meter and network seams are left to the caller.
	Proxy proxy.Config
	// Password is where that of Proxy.Credentials stands, or the token; zero: no login.
	Password Secret
	// ListenerTLS has what listeners with TLS need, by their names. Their
	// proxy.Listener.TLS says only that it is wanted: whoever starts the proxy reads
	// the files.
	ListenerTLS map[string]tlsfiles.Files
	// ListenerUsers has the users files of listeners at which clients log in, by their
	// names. Whoever starts the proxy reads them, and has the Begin of their
	// proxy.LocalLogin use them.
	ListenerUsers map[string]string
	// UpstreamTLS is what brokers are spoken to with; nil: plain. Whoever starts the
	// proxy has its Dial do so.
	UpstreamTLS *tlsfiles.Files
	// LogLevel is the least level that is logged; default info.
	LogLevel slog.Level
	// LogFormat is the form of log lines; default FormatText.
	LogFormat Format
	// MetricsListen is the host:port of the admin endpoints; empty: none.
	MetricsListen string
	// Pprof has the admin endpoints serve profiles of the process too. It is
	// false without MetricsListen, and by default.
	Pprof bool
	// Notes say, for a person, what is allowed but may not be meant.
	Notes []string
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// defaultListen is the port that Kafka clients expect, for this machine only.
const defaultListen = "127.0.0.1:9092"

// Defaults gives the settings of a file that names the brokers only, without
// them. Every default is the proxy's own, but for the address to listen on.
func Defaults() *Settings {
	inForce, err := proxy.Config{Bootstrap: []string{"any:9092"}, Listen: defaultListen}.InForce()
	if err != nil {
		panic(fmt.Sprintf("config: the defaults contradict each other: %v", err))
	}
	inForce.Bootstrap = nil
	return &Settings{Proxy: inForce, LogFormat: FormatText}
}
