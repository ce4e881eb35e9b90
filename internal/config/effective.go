package config

import (
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// Effective is what is in force, in the words of the configuration file, for
// programs. Lengths of time and sizes are written as in the file.
type Effective struct {
	Bootstrap      []string          `json:"bootstrap"`
	Listen         string            `json:"listen"`
	AdvertisedHost string            `json:"advertised_host"`
	BrokerPorts    string            `json:"broker_ports,omitempty"`
	NodePorts      map[int32]int     `json:"node_ports,omitempty"`
	Rules          []EffectiveRule   `json:"rules"`
	DefaultMode    string            `json:"default_mode"`
	FenceID        string            `json:"fence_id"`
	BrokerKind     string            `json:"broker_kind"`
	Assert         map[string]string `json:"assert,omitempty"`
	ViewMaxAge     string            `json:"view_max_age"`
	AdmissionWait  string            `json:"admission_wait"`
	ClockSkew      string            `json:"clock_skew"`
	Limits         map[string]string `json:"limits"`
	LogLevel       string            `json:"log_level"`
	LogFormat      Format            `json:"log_format"`
	MetricsListen  string            `json:"metrics_listen,omitempty"`
	Notes          []string          `json:"notes,omitempty"`
}

// EffectiveRule is one rule of an Effective.
type EffectiveRule struct {
	Topics string `json:"topics"`
	Mode   string `json:"mode"`
}

// limitNames gives the order in which limits are shown.
var limitNames = []string{"max_frame", "max_decompressed", "max_pending_requests", "max_rewritten", "max_held", "max_connections",
	"dial_timeout", "handshake_timeout", "idle_timeout", "drain_timeout", "idle_views"}

// Effective gives the settings in the words of the file.
func (s *Settings) Effective() Effective {
	p := &s.Proxy
	e := Effective{
		Bootstrap:      p.Bootstrap,
		Listen:         p.Listen,
		AdvertisedHost: advertised(p),
		BrokerPorts:    brokerPorts(p),
		NodePorts:      p.NodePorts,
		Rules:          []EffectiveRule{},
		DefaultMode:    modeName(p.Default),
		FenceID:        fmt.Sprintf("0x%016x", p.FenceID),
		BrokerKind:     "kafka",
		ViewMaxAge:     duration(p.ViewMaxAge),
		AdmissionWait:  duration(p.AdmissionWait),
		ClockSkew:      duration(p.ClockSkew),
		LogLevel:       strings.ToLower(s.LogLevel.String()),
		LogFormat:      s.LogFormat,
		MetricsListen:  s.MetricsListen,
		Notes:          s.Notes,
		Limits: map[string]string{
			"max_frame":            size(p.MaxFrameBytes),
			"max_decompressed":     size(p.MaxDecompressedBytes),
			"max_pending_requests": strconv.Itoa(p.MaxPendingRequests),
			"max_rewritten":        size(p.MaxRewrittenBytes),
			"max_held":             size(p.MaxHeldBytes),
			"max_connections":      strconv.Itoa(p.MaxConnections),
			"dial_timeout":         duration(p.DialTimeout),
			"handshake_timeout":    duration(p.HandshakeTimeout),
			"idle_timeout":         duration(p.IdleTimeout),
			"drain_timeout":        duration(p.DrainTimeout),
			"idle_views":           strconv.Itoa(p.IdleViews),
		},
	}
	for _, r := range p.Rules {
		e.Rules = append(e.Rules, EffectiveRule{Topics: r.Topics, Mode: modeName(r.Mode)})
	}
	if p.BrokerKind == proxy.EmbeddedKfake {
		e.BrokerKind = "kfake"
	}
	e.Assert = map[string]string{}
	if p.AssertedProducerExpiry > 0 {
		e.Assert["producer_id_expiration"] = duration(p.AssertedProducerExpiry)
	}
	if p.AssertedConnectionIdle > 0 {
		e.Assert["connections_max_idle"] = duration(p.AssertedConnectionIdle)
	}
	return e
}

// WriteTo writes what is in force for a person to read.
func (e Effective) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	kind := "Apache Kafka"
	if e.BrokerKind == "kfake" {
		kind = "embedded kfake, not for real data"
	}
	line("brokers", "%s (%s)", strings.Join(e.Bootstrap, ", "), kind)
	line("clients connect to", "%s, and are told the host %s", e.Listen, e.AdvertisedHost)
	ports := e.BrokerPorts
	if ports == "" {
		ports = "any free port for each broker"
	}
	line("broker ports", "%s", ports)
	for _, node := range slices.Sorted(maps.Keys(e.NodePorts)) {
		line("", "node id %d on %d", node, e.NodePorts[node])
	}
	name := "topics, first match"
	for _, r := range e.Rules {
		line(name, "%-20s %s", r.Topics, modeWords(r.Mode))
		name = ""
	}
	rest := "every other topic"
	if len(e.Rules) == 0 {
		name, rest = "topics", "every topic"
	}
	line(name, "%-20s %s", rest, modeWords(e.DefaultMode))
	line("fence", "producer id %s, the same for all proxies of the cluster", e.FenceID)
	line("", "views up to %s old, queue wait %s, clock skew %s", e.ViewMaxAge, e.AdmissionWait, e.ClockSkew)
	for _, k := range slices.Sorted(maps.Keys(e.Assert)) {
		line("taken on your word", "%s = %s", k, e.Assert[k])
	}
	name = "limits"
	for _, k := range limitNames {
		v := e.Limits[k]
		if k == "idle_timeout" && v == "0s" {
			v = "none of its own, the brokers' decides"
		}
		line(name, "%-20s %s", k, v)
		name = ""
	}
	line("log", "%s and above, as %s, to standard error", e.LogLevel, e.LogFormat)
	if e.MetricsListen != "" {
		line("admin", "http://%s/metrics, /livez, /readyz", e.MetricsListen)
	} else {
		line("admin", "no metrics endpoint")
	}
	for _, n := range e.Notes {
		fmt.Fprintf(&b, "\nnote: %s\n", n)
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

func advertised(p *proxy.Config) string {
	if p.AdvertisedHost != "" {
		return p.AdvertisedHost
	}
	host, _, err := net.SplitHostPort(p.Listen)
	if err != nil || isUnspecified(host) {
		return "127.0.0.1"
	}
	return host
}

func brokerPorts(p *proxy.Config) string {
	if p.BrokerPorts != (proxy.PortRange{}) {
		return fmt.Sprintf("%d-%d: node id n on %d+n", p.BrokerPorts.First, p.BrokerPorts.Last, p.BrokerPorts.First)
	}
	if port := portOf(p.Listen); port != 0 {
		return fmt.Sprintf("from %d: node id n on %d+n", port+1, port+1)
	}
	return ""
}

func modeName(m proxy.Mode) string {
	if m == proxy.ModeRequire {
		return "require"
	}
	return "off"
}

func modeWords(mode string) string {
	if mode == "require" {
		return "require: conditional appends are fenced, all others refused"
	}
	return "off: forwarded untouched"
}
