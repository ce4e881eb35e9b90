package config

import (
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// resolver collects all that is wrong while a Document is understood.
type resolver struct {
	doc      *Document
	out      *Settings
	problems []Problem
}

// Resolve understands a document, with defaults for what it does not give.
// Errors: *Error.
func (d *Document) Resolve() (*Settings, error) {
	r := &resolver{doc: d, out: Defaults()}
	// These follow from others that the document may give.
	r.out.Proxy.AdvertisedHost, r.out.Proxy.BrokerPorts = "", proxy.PortRange{}
	r.addresses()
	r.rules()
	r.brokers()
	r.upstream()
	r.upstreamTLS()
	r.limits()
	r.process()
	r.together()
	r.whoClientsAre()
	r.servable()
	if len(r.problems) == 0 {
		inForce, err := r.out.Proxy.InForce()
		if err != nil {
			r.refused(err)
		}
		r.out.Proxy = inForce
	}
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b Problem) int { return a.Line - b.Line })
		return nil, &Error{Problems: r.problems}
	}
	return r.out, nil
}

func (r *resolver) wrong(v Value, path, format string, args ...any) {
	r.problems = append(r.problems, problemAt(v.at, path, fmt.Sprintf(format, args...)))
}

func (r *resolver) note(format string, args ...any) {
	r.out.Notes = append(r.out.Notes, fmt.Sprintf(format, args...))
}

func (r *resolver) addresses() {
	d, p := r.doc, &r.out.Proxy
	for i, v := range d.Bootstrap {
		at := fmt.Sprintf("bootstrap[%d]", i)
		if len(d.Bootstrap) == 1 {
			at = "bootstrap"
		}
		host, port, err := splitAddress(v.text)
		switch {
		case err != nil:
			r.wrong(v, at, "%v", err)
		case host == "" || port == 0:
			r.wrong(v, at, "%q: a broker address needs a host and a port, as in kafka-1:9092", v.text)
		case slices.Contains(p.Bootstrap, v.text):
			r.wrong(v, at, "%q is given twice", v.text)
		default:
			p.Bootstrap = append(p.Bootstrap, v.text)
		}
	}
	if len(d.Bootstrap) == 0 {
		r.wrong(Value{}, "bootstrap", "missing: the host:port of at least one broker")
	}
	r.listeners()
}

func (r *resolver) brokers() {
	d, p := r.doc, &r.out.Proxy
	if v := d.FenceID; v.given {
		id, err := parseID(v.text)
		if err != nil {
			r.wrong(v, "fence_id", "%v", err)
		}
		p.FenceID = id
	}
	switch v := d.Brokers.Kind; v.text {
	case "auto":
	case "kafka":
		p.BrokerKind = proxy.ApacheKafka
	case "kfake":
		p.BrokerKind = proxy.EmbeddedKfake
	default:
		if v.given {
			r.wrong(v, "brokers.kind", "%q is not a kind of broker; auto, kafka and kfake are", v.text)
		}
	}
	if v := d.Brokers.ProbeTopic; v.given {
		if !topicName.MatchString(v.text) {
			r.wrong(v, "brokers.probe_topic", "%q is not the name of a topic: letters, digits, '.', '_' and '-', at most 249", v.text)
		} else {
			p.ProbeTopic = v.text
		}
	}
	const most = 10 * 365 * 24 * time.Hour
	a := d.Brokers.Assert
	p.AssertedProducerExpiry = r.duration(a.ProducerIDExpiration, "brokers.assert.producer_id_expiration", 0, time.Second, most)
	p.AssertedExpiryCheck = r.duration(a.ProducerIDExpirationCheck, "brokers.assert.producer_id_expiration_check", 0, time.Second, most)
	p.AssertedConnectionIdle = r.duration(a.ConnectionsMaxIdle, "brokers.assert.connections_max_idle", 0, time.Second, most)
	p.ViewMaxAge = r.duration(d.ViewMaxAge, "view_max_age", p.ViewMaxAge, 100*time.Millisecond, time.Hour)
	p.AdmissionWait = r.duration(d.AdmissionWait, "admission_wait", p.AdmissionWait, time.Millisecond, time.Minute)
	p.AnswerMax = r.duration(d.AnswerMax, "answer_max", p.AnswerMax, time.Second, time.Hour)
	p.ClockSkew = r.duration(d.ClockSkew, "clock_skew", p.ClockSkew, time.Millisecond, time.Hour)
}

func (r *resolver) limits() {
	l, p := r.doc.Limits, &r.out.Proxy
	p.MaxFrameBytes = r.size(l.MaxFrame, "limits.max_frame", p.MaxFrameBytes, kib, math.MaxInt32)
	p.MaxDecompressedBytes = r.size(l.MaxDecompressed, "limits.max_decompressed", p.MaxDecompressedBytes, kib, math.MaxInt32)
	p.MaxProducePartitions = r.count(l.MaxProducePartitions, "limits.max_produce_partitions", p.MaxProducePartitions, 1, 1<<20)
	p.MaxPendingRequests = r.count(l.MaxPendingRequests, "limits.max_pending_requests", p.MaxPendingRequests, 1, 1<<20)
	p.MaxRewrittenBytes = r.size(l.MaxRewritten, "limits.max_rewritten", p.MaxRewrittenBytes, kib, math.MaxInt32)
	p.MaxHeldBytes = r.size(l.MaxHeld, "limits.max_held", p.MaxHeldBytes, kib, math.MaxInt32)
	p.MaxConnections = r.count(l.MaxConnections, "limits.max_connections", p.MaxConnections, 1, 1<<24)
	p.MaxConnectionsPerAddress = r.count(l.MaxConnectionsPerAddress, "limits.max_connections_per_address", p.MaxConnectionsPerAddress, 0, 1<<24)
	p.MaxBufferedBytes = r.size(l.MaxBuffered, "limits.max_buffered", p.MaxBufferedBytes, mib, math.MaxInt)
	p.ArrivalTimeout = r.duration(l.ArrivalTimeout, "limits.arrival_timeout", p.ArrivalTimeout, time.Millisecond, time.Hour)
	p.WriteTimeout = r.duration(l.WriteTimeout, "limits.write_timeout", p.WriteTimeout, 10*time.Millisecond, 24*time.Hour)
	p.LongestHold = r.duration(l.LongestHold, "limits.longest_hold", p.LongestHold, time.Millisecond, 10*time.Minute)
	p.LookupTimeout = r.duration(l.LookupTimeout, "limits.lookup_timeout", p.LookupTimeout, 10*time.Millisecond, time.Minute)
	p.ReadingTimeout = r.duration(l.ReadingTimeout, "limits.reading_timeout", p.ReadingTimeout, 100*time.Millisecond, 5*time.Minute)
	p.DrainDelay = r.duration(l.DrainDelay, "limits.drain_delay", p.DrainDelay, 0, time.Hour)
	p.DialTimeout = r.duration(l.DialTimeout, "limits.dial_timeout", p.DialTimeout, time.Millisecond, time.Hour)
	p.HandshakeTimeout = r.duration(l.HandshakeTimeout, "limits.handshake_timeout", p.HandshakeTimeout, time.Millisecond, time.Hour)
	p.IdleTimeout = r.duration(l.IdleTimeout, "limits.idle_timeout", p.IdleTimeout, 0, 30*24*time.Hour)
	p.DrainTimeout = r.duration(l.DrainTimeout, "limits.drain_timeout", p.DrainTimeout, time.Millisecond, time.Hour)
	p.IdleViews = r.count(l.IdleViews, "limits.idle_views", p.IdleViews, 1, 1<<26)
	p.ProducerKeep = r.duration(l.ProducerKeep, "limits.producer_keep", p.ProducerKeep, time.Second, 7*24*time.Hour)
	p.MaxProducers = r.count(l.MaxProducers, "limits.max_producers", p.MaxProducers, 1, 1<<20)
	p.IdleProducers = r.count(l.IdleProducers, "limits.idle_producers", p.IdleProducers, 1, 1<<26)
	p.MaxRuleTopics = r.count(l.MaxRuleTopics, "limits.max_rule_topics", p.MaxRuleTopics, 1, 1<<24)
	p.MaxTopics = r.count(l.MaxTopics, "limits.max_topics", p.MaxTopics, 1, 1<<26)
	p.MaxUnknown = r.count(l.MaxUnknown, "limits.max_unknown", p.MaxUnknown, 1, 1<<20)
	p.MaxAddPartitionsBytes = r.size(l.MaxAddPartitions, "limits.max_add_partitions", p.MaxAddPartitionsBytes, kib, math.MaxInt32)
	p.MaxReadings = r.count(l.MaxReadings, "limits.max_readings", p.MaxReadings, 1, 1<<16)
	p.OldReadsPerSecond = r.count(l.OldReadsPerSecond, "limits.old_reads_per_second", p.OldReadsPerSecond, 1, 1<<20)
	p.MaxReadBackBytes = r.size(l.MaxReadBack, "limits.max_read_back", p.MaxReadBackBytes, kib, gib)
	p.MaxControlBytes = r.size(l.MaxControlAnswer, "limits.max_control_answer", p.MaxControlBytes, mib, math.MaxInt32)
	p.ControlTimeout = r.duration(l.ControlTimeout, "limits.control_timeout", p.ControlTimeout, 10*time.Millisecond, time.Minute)
}

func (r *resolver) process() {
	switch v := r.doc.Log.Level; v.text {
	case "debug":
		r.out.LogLevel = slog.LevelDebug
	case "info":
	case "warn":
		r.out.LogLevel = slog.LevelWarn
	case "error":
		r.out.LogLevel = slog.LevelError
	default:
		if v.given {
			r.wrong(v, "log.level", "%q is not a level; debug, info, warn and error are", v.text)
		}
	}
	switch v := r.doc.Log.Format; Format(v.text) {
	case FormatText, FormatJSON:
		r.out.LogFormat = Format(v.text)
	default:
		if v.given {
			r.wrong(v, "log.format", "%q is not a log format; text and json are", v.text)
		}
	}
	r.address(r.doc.Metrics.Listen, "metrics.listen", &r.out.MetricsListen)
	r.yesOrNo(r.doc.Metrics.Pprof, "metrics.pprof", &r.out.Pprof)
	perTopic, most := false, r.count(r.doc.Metrics.MaxTopics, "metrics.max_topics", DefaultMetricTopics, 1, 10_000)
	r.yesOrNo(r.doc.Metrics.PerTopic, "metrics.per_topic", &perTopic)
	if perTopic {
		r.out.Proxy.MetricTopics = most
	}
}

// DefaultMetricTopics is Metrics.MaxTopics where it is not given: enough for most
// clusters, and not too much for who collects metrics, with a dozen series each at most.
const DefaultMetricTopics = 100

// together checks what only shows when settings meet.
func (r *resolver) together() {
	d, p := r.doc, &r.out.Proxy
	if r.out.Pprof && !d.Metrics.Listen.given {
		r.wrong(d.Metrics.Pprof, "metrics.pprof", "profiles are served beside the metrics, and no metrics.listen says where")
	}
	for i, l := range p.AllListeners() {
		r.bootstrapsItself(l)
		path := ""
		if p.Listen == "" {
			path = fmt.Sprintf("listeners[%d].", i)
		}
		r.besideMetrics(path, &l)
		if host, _, err := splitAddress(l.Listen); err == nil && proxy.IsUnspecifiedHost(host) && l.AdvertisedHost == "" && l.ServerNames == nil {
			r.note("%slisten is on all interfaces and no advertised_host is given: clients are told 127.0.0.1 and can only be on this machine", path)
		}
		if host := l.AdvertisedHost; host != "" && onLoopback(l.Listen) && !onLoopback(net.JoinHostPort(host, "0")) {
			r.note("%slisten is on loopback, and clients are told %s: they reach it only if something on this machine forwards to it", path, host)
		}
	}
	if len(p.Rules) == 0 && p.Default == proxy.ModeOff {
		r.note("no rule and default mode off: nothing is checked, the proxy only passes through")
	}
}

// bootstrapsItself reports brokers' addresses that are a listener's own.
func (r *resolver) bootstrapsItself(l proxy.Listener) {
	host, port, err := splitAddress(l.Listen)
	if err != nil || port == 0 {
		return
	}
	for _, v := range r.doc.Bootstrap {
		of, ofPort, err := splitAddress(v.text)
		if err != nil || ofPort != port {
			continue
		}
		// Other addresses of loopback may be somebody else's.
		here := onLoopback(v.text) && (proxy.IsUnspecifiedHost(host) || onLoopback(l.Listen) && (of == "localhost" || host == "localhost"))
		if of == host || here {
			r.wrong(v, "bootstrap", "%s is this proxy's own listen address: it has to be the brokers'", v.text)
		}
	}
}

// likelyNodes bounds the node ids that a note is worth where no ports were given: beyond
// it nobody has brokers, or an error in the log tells that one cannot be served.
const likelyNodes = 100

// besideMetrics checks that a listener's ports are not that of the metrics.
func (r *resolver) besideMetrics(path string, l *proxy.Listener) {
	port, v := portOf(r.out.MetricsListen), r.doc.Metrics.Listen
	if port == 0 {
		return
	}
	listen := portOf(l.Listen)
	if port == listen {
		r.wrong(v, "metrics.listen", "%d is the port of %slisten", port, path)
	}
	if b := l.BrokerPorts; b.First <= port && port <= b.Last {
		r.wrong(v, "metrics.listen", "%d is one of %sbroker_ports", port, path)
	}
	if of := port - listen - 1; l.BrokerPorts == (proxy.PortRange{}) && l.ServerNames == nil && listen != 0 && 0 <= of && of < likelyNodes {
		r.note("metrics.listen uses %d, where a broker with node id %d would be served; give %sbroker_ports to keep them apart", port, of, path)
	}
}

// servable checks, as the proxy will for each topic, that the brokers remember
// the fence for longer than a batch can be held up. What is not asserted is
// read from the brokers later: it is an error only if no value would do.
func (r *resolver) servable() {
	p, a := &r.out.Proxy, r.doc.Brokers.Assert
	known := p.AssertedLimits()
	if known.ProducerExpiry > 0 && !p.Servable(known) {
		r.wrong(first(a.ProducerIDExpiration, a.ConnectionsMaxIdle, a.ProducerIDExpirationCheck, r.doc.ViewMaxAge, r.doc.ClockSkew),
			"brokers.assert.producer_id_expiration", "no topic would be served: %s. Raise producer.id.expiration.ms at the brokers, or lower what it must cover", inequality(p, known))
		return
	}
	fences := p.Default != proxy.ModeOff || slices.ContainsFunc(p.Rules, func(rule proxy.Rule) bool { return rule.Mode != proxy.ModeOff })
	if usual := known.Or(proxy.KafkaLimits()); fences && !p.Servable(usual) {
		r.note("on brokers with Kafka's defaults no topic is served: %s", inequality(p, usual))
	}
}

// inequality puts proxy.Config.Servable into words. Zero limits are left out.
func inequality(p *proxy.Config, l proxy.BrokerLimits) string {
	var parts []string
	sum := time.Duration(0)
	for _, part := range []struct {
		name string
		d    time.Duration
	}{
		{"view_max_age", p.ViewMaxAge}, {"answer_max", p.AnswerMax}, {"connections.max.idle.ms", l.ConnectionIdle},
		{"producer.id.expiration.check.interval.ms", l.ExpiryCheck}, {"clock_skew", p.ClockSkew},
	} {
		if part.d > 0 {
			parts = append(parts, part.name+" "+duration(part.d))
			sum += part.d
		}
	}
	return fmt.Sprintf("half of producer.id.expiration.ms (%s) must be more than %s = %s", duration(l.ProducerExpiry), strings.Join(parts, " + "), duration(sum))
}

// first gives the first value that is given.
func first(vs ...Value) Value {
	for _, v := range vs {
		if v.given {
			return v
		}
	}
	return Value{}
}
