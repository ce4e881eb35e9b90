package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// Effective is what is in force, in the words of the configuration file, for
// programs. Lengths of time and sizes are written as in the file.
type Effective struct {
	// Bootstrap lists the brokers' host:port addresses.
	Bootstrap []string `json:"bootstrap"`
	// Listeners are all of them, if the file has a list; else the next four are one.
	Listeners []EffectiveListener `json:"listeners,omitempty"`
	// Listen is the host:port that clients connect to first.
	Listen string `json:"listen,omitempty"`
	// AdvertisedHost is the host name that clients are told.
	AdvertisedHost string `json:"advertised_host,omitempty"`
	// BrokerPorts is the range of the brokers' ports as first-last; empty: any
	// free port for each.
	BrokerPorts string `json:"broker_ports,omitempty"`
	// NodePorts are exceptions, port by node id.
	NodePorts map[int32]int `json:"node_ports,omitempty"`
	// Rules are tried in order.
	Rules []EffectiveRule `json:"rules"`
	// DefaultMode is that of topics that no rule matches.
	DefaultMode string `json:"default_mode"`
	// FenceID is hexadecimal with 0x: 64 bits are too many for JSON numbers.
	FenceID string `json:"fence_id"`
	// SASL is how the proxy logs in to the brokers; nil: not at all.
	SASL *EffectiveSASL `json:"upstream_sasl,omitempty"`
	// UpstreamTLS is what brokers are spoken to with; nil: plain.
	UpstreamTLS *EffectiveTLS `json:"upstream_tls,omitempty"`
	// BrokerKind is auto, kafka or kfake.
	BrokerKind string `json:"broker_kind"`
	// ProbeTopic is where brokers are probed.
	ProbeTopic string `json:"probe_topic"`
	// Assert has the brokers' limits that are not read from them, by the names
	// of brokers.assert (see proxy.Config.AssertedLimits).
	Assert map[string]string `json:"assert,omitempty"`
	// ViewMaxAge is view_max_age.
	ViewMaxAge string `json:"view_max_age"`
	// AdmissionWait is admission_wait.
	AdmissionWait string `json:"admission_wait"`
	// AnswerMax is answer_max.
	AnswerMax string `json:"answer_max"`
	// ClockSkew is clock_skew.
	ClockSkew string `json:"clock_skew"`
	// Limits has every limit by its name in the file.
	Limits map[string]string `json:"limits"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `json:"log_level"`
	// LogFormat is the form of log lines.
	LogFormat Format `json:"log_format"`
	// MetricsListen is the host:port of the admin endpoints; empty: none.
	MetricsListen string `json:"metrics_listen,omitempty"`
	// Pprof reports whether they serve profiles.
	Pprof bool `json:"pprof,omitempty"`
	// MetricTopics is metrics.max_topics with metrics.per_topic, else 0.
	MetricTopics int `json:"metric_topics,omitempty"`
	// Notes say what is allowed but may not be meant.
	Notes []string `json:"notes,omitempty"`
}

// EffectiveSASL is the proxy's login, but for its password.
type EffectiveSASL struct {
	// Mechanism is upstream.sasl.mechanism.
	Mechanism string `json:"mechanism"`
	// User is upstream.sasl.user; empty: the token says who it is.
	User string `json:"user,omitempty"`
	// PasswordFrom says where the password stands, or the token.
	PasswordFrom string `json:"password_from"`
	// ForClients reports whether the proxy logs in for clients too.
	ForClients bool `json:"for_clients,omitempty"`
}

// kindNames are the words for kinds of broker.
var kindNames = map[proxy.BrokerKind]string{proxy.AutoKind: "auto", proxy.ApacheKafka: "kafka", proxy.EmbeddedKfake: "kfake"}

// limitNames gives the order in which limits are shown.
var limitNames = []string{"max_frame", "max_decompressed", "max_produce_partitions", "max_pending_requests", "max_rewritten", "max_held", "max_connections",
	"max_connections_per_address", "max_buffered", "arrival_timeout", "write_timeout", "longest_hold", "lookup_timeout", "reading_timeout", "drain_delay",
	"dial_timeout", "handshake_timeout", "idle_timeout", "drain_timeout", "idle_views",
	"producer_keep", "max_producers", "idle_producers", "max_rule_topics",
	"max_topics", "max_unknown", "max_add_partitions", "max_readings", "old_reads_per_second", "max_read_back", "max_control_answer", "control_timeout"}

// Effective gives the settings in the words of the file.
func (s *Settings) Effective() Effective {
	p := &s.Proxy
	e := Effective{
		Bootstrap:      p.Bootstrap,
		Listen:         p.Listen,
		AdvertisedHost: p.AdvertisedHost,
		BrokerPorts:    portRange(p.BrokerPorts),
		NodePorts:      p.NodePorts,
		Rules:          []EffectiveRule{},
		DefaultMode:    modeNames[p.Default],
		FenceID:        fmt.Sprintf("0x%016x", p.FenceID),
		BrokerKind:     kindNames[p.BrokerKind],
		ProbeTopic:     p.ProbeTopic,
		ViewMaxAge:     duration(p.ViewMaxAge),
		AdmissionWait:  duration(p.AdmissionWait),
		AnswerMax:      duration(p.AnswerMax),
		ClockSkew:      duration(p.ClockSkew),
		LogLevel:       strings.ToLower(s.LogLevel.String()),
		LogFormat:      s.LogFormat,
		MetricsListen:  s.MetricsListen,
		Pprof:          s.Pprof,
		MetricTopics:   p.MetricTopics,
		Notes:          s.Notes,
		Limits: map[string]string{
			"max_frame":                   size(p.MaxFrameBytes),
			"max_decompressed":            size(p.MaxDecompressedBytes),
			"max_produce_partitions":      strconv.Itoa(p.MaxProducePartitions),
			"max_pending_requests":        strconv.Itoa(p.MaxPendingRequests),
			"max_rewritten":               size(p.MaxRewrittenBytes),
			"max_held":                    size(p.MaxHeldBytes),
			"max_connections":             strconv.Itoa(p.MaxConnections),
			"max_connections_per_address": strconv.Itoa(p.MaxConnectionsPerAddress),
			"max_buffered":                size(p.MaxBufferedBytes),
			"arrival_timeout":             duration(p.ArrivalTimeout),
			"write_timeout":               duration(p.WriteTimeout),
			"longest_hold":                duration(p.LongestHold),
			"lookup_timeout":              duration(p.LookupTimeout),
			"reading_timeout":             duration(p.ReadingTimeout),
			"drain_delay":                 duration(p.DrainDelay),
			"dial_timeout":                duration(p.DialTimeout),
			"handshake_timeout":           duration(p.HandshakeTimeout),
			"idle_timeout":                duration(p.IdleTimeout),
			"drain_timeout":               duration(p.DrainTimeout),
			"idle_views":                  strconv.Itoa(p.IdleViews),
			"producer_keep":               duration(p.ProducerKeep),
			"max_producers":               strconv.Itoa(p.MaxProducers),
			"idle_producers":              strconv.Itoa(p.IdleProducers),
			"max_rule_topics":             strconv.Itoa(p.MaxRuleTopics),
			"max_topics":                  strconv.Itoa(p.MaxTopics),
			"max_unknown":                 strconv.Itoa(p.MaxUnknown),
			"max_add_partitions":          size(p.MaxAddPartitionsBytes),
			"max_readings":                strconv.Itoa(p.MaxReadings),
			"old_reads_per_second":        strconv.Itoa(p.OldReadsPerSecond),
			"max_read_back":               size(p.MaxReadBackBytes),
			"max_control_answer":          size(p.MaxControlBytes),
			"control_timeout":             duration(p.ControlTimeout),
		},
	}
	for _, r := range p.Rules {
		e.Rules = append(e.Rules, effectiveRule(r))
	}
	for _, l := range p.Listeners {
		e.Listeners = append(e.Listeners, s.effectiveListener(l))
	}
	if s.UpstreamTLS != nil {
		e.UpstreamTLS = effectiveTLS(*s.UpstreamTLS)
	}
	if c := p.Credentials; c.Mechanism != proxy.NoLogin {
		e.SASL = &EffectiveSASL{Mechanism: string(c.Mechanism), User: c.User, PasswordFrom: s.Password.String(), ForClients: c.ForClients}
	}
	e.Assert = map[string]string{}
	asserted := p.AssertedLimits()
	for name, d := range map[string]time.Duration{
		"producer_id_expiration": asserted.ProducerExpiry, "producer_id_expiration_check": asserted.ExpiryCheck,
		"connections_max_idle": asserted.ConnectionIdle,
	} {
		if d > 0 {
			e.Assert[name] = duration(d)
		}
	}
	return e
}

// shown are all listeners.
func (e Effective) shown() []EffectiveListener {
	if e.Listen == "" {
		return e.Listeners
	}
	return append([]EffectiveListener{{
		Listen: e.Listen, AdvertisedHost: e.AdvertisedHost, BrokerPorts: e.BrokerPorts, NodePorts: e.NodePorts,
	}}, e.Listeners...)
}

// WriteTo writes what is in force for a person to read.
func (e Effective) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	kind := map[string]string{
		"auto": "of a kind that is learnt on topic " + e.ProbeTopic, "kafka": "Apache Kafka", "kfake": "embedded kfake, not for real data",
	}[e.BrokerKind]
	line("brokers", "%s (%s)", strings.Join(e.Bootstrap, ", "), kind)
	if e.SASL != nil {
		if e.SASL.User == "" {
			line("log in to brokers", "by %s, the token from %s", e.SASL.Mechanism, e.SASL.PasswordFrom)
		} else {
			line("log in to brokers", "as %s by %s, the password from %s", e.SASL.User, e.SASL.Mechanism, e.SASL.PasswordFrom)
		}
		if e.SASL.ForClients {
			line("", "for clients too: brokers know them all as the proxy")
		}
	}
	if e.UpstreamTLS != nil {
		authorities, certificate := e.UpstreamTLS.CAFile, ""
		if authorities == "" {
			authorities = "this system"
		}
		if e.UpstreamTLS.CertFile != "" {
			certificate = ", showing " + e.UpstreamTLS.CertFile
		}
		line("speak to brokers", "in TLS %s or later, by the authorities of %s%s", e.UpstreamTLS.MinVersion, authorities, certificate)
	}
	for _, l := range e.shown() {
		l.write(line)
	}
	name, width := "topics, first match", 20
	for _, r := range e.Rules {
		width = max(width, len(pattern(r.Topics, r.TopicsRegexp)))
	}
	for _, r := range e.Rules {
		line(name, "%-*s %s", width, pattern(r.Topics, r.TopicsRegexp), modeWords[r.Mode])
		if options := r.chosen(); options != "" {
			line("", "%-*s %s", width, "", options)
		}
		name = ""
	}
	rest := "every other topic"
	if len(e.Rules) == 0 {
		name, rest = "topics", "every topic"
	}
	line(name, "%-*s %s", width, rest, modeWords[e.DefaultMode])
	line("fence", "producer id %s, the same for all proxies of the cluster", e.FenceID)
	line("", "views up to %s old, queue wait %s, answers awaited for %s, clock skew %s", e.ViewMaxAge, e.AdmissionWait, e.AnswerMax, e.ClockSkew)
	name = "not read from brokers"
	for _, k := range slices.Sorted(maps.Keys(e.Assert)) {
		line(name, "%-28s %s", k, e.Assert[k])
		name = ""
	}
	name = "limits"
	unset := Defaults().Effective().Limits
	for _, k := range limitNames {
		v := e.Limits[k]
		if k == "idle_timeout" && v == "0s" {
			v = "none of its own, the brokers' decides"
		}
		if k == "max_connections_per_address" && v == "0" {
			v = "no limit of its own"
		}
		if usual := unset[k]; usual != e.Limits[k] {
			v += " (default " + usual + ")"
		}
		line(name, "%-27s %s", k, v)
		name = ""
	}
	line("log", "%s and above, as %s, to standard error", e.LogLevel, e.LogFormat)
	if e.MetricsListen != "" {
		profiles := ""
		if e.Pprof {
			profiles = ", /debug/pprof"
		}
		line("admin", "http://%s/, /metrics, /livez, /readyz%s", e.MetricsListen, profiles)
	} else {
		line("admin", "no metrics endpoint")
	}
	if e.MetricTopics > 0 {
		line("metrics by topic", "for %d topics, all others together", e.MetricTopics)
	}
	for _, n := range e.Notes {
		fmt.Fprintf(&b, "\nnote: %s\n", n)
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}
