package proxy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

const (
	// statusAge is for how long a Status serves all who ask.
	statusAge = 250 * time.Millisecond
	// shownBrokers, shownRules and shownTopics bound those of a Status.
	shownBrokers, shownRules, shownTopics = 200, 200, 50
	// shownText bounds texts that come from elsewhere, in bytes.
	shownText = 300
)

// Names of the states of a proxy.
const (
	stateReady    = "ready"
	stateNotReady = "not_ready"
	stateDraining = "draining"
)

// Names of how connections to a broker went.
const (
	brokerReached = "reached"
	brokerFailing = "failing"
	brokerUntried = "untried"
)

// statusTaker takes one Status at a time, which many may share.
type statusTaker struct {
	mu   sync.Mutex
	last *Status
	at   ps.Instant
}

// Status shows what goes on. What was taken less than a quarter of a second ago is
// given again, so that it does not matter how many watch. Taking it costs some
// microseconds, and less than one for each partition in use; it keeps nobody else
// waiting for longer than a few of them.
func (p *Proxy) Status() *Status {
	t := &p.status
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := instant(); t.last == nil || at.Sub(t.at) >= statusAge {
		t.last, t.at = p.takeStatus(at), at
	}
	return t.last
}

func (p *Proxy) takeStatus(at ps.Instant) *Status {
	s := &Status{
		At: wall().UTC(), UptimeSeconds: int64(at.Sub(p.since) / time.Second),
		State: stateReady, Reason: shortened(p.NotReady()),
		Partitions: make([]PartitionStatus, 0, shownPartitions),
	}
	p.showLoad(s)
	p.showDrain(s)
	p.showListeners(s)
	p.showBrokers(s)
	p.showRules(s)
	m, f := p.metrics, p.fencing
	s.Appends = AppendStatus{
		Outcomes: m.outcomes.all(), Retries: m.retries.some(), Refusals: m.refusals.some(), Observed: m.observed.some(),
		Attempts: m.attempts.Load(), LostRaces: m.lostRaces.Load(), Pauses: m.pauses.Load(),
		Views: m.readings.all(), AlarmCounts: m.alarms.some(),
	}
	s.TopicsUnserved, s.TopicsWeak = m.unserved.Load(), m.weak.Load()
	problems := f.topics.troubled()
	s.Topics = make([]TopicStatus, 0, len(problems))
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		topic := problems[name]
		topic.Refusal, topic.Weak = shortened(topic.Refusal), shortened(topic.Weak)
		s.Topics = append(s.Topics, topic)
	}
	f.partitions(s, problems, at)
	s.Violations, s.Alarms = f.events.violations.newestFirst(), f.events.alarms.newestFirst()
	return s
}

// showLoad shows what there is of connections, traffic and memory.
func (p *Proxy) showLoad(s *Status) {
	m := p.metrics
	s.Connections = ConnectionStatus{Open: m.open.Load(), Max: p.cfg.MaxConnections, Accepted: m.accepted.Load()}
	s.Traffic = TrafficStatus{BytesIn: m.bytesIn.Load(), BytesOut: m.bytesOut.Load(), DialErrors: m.dialErrors.Load(), Malformed: m.malformedBy.some()}
	for i := range m.requests {
		s.Traffic.Requests += m.requests[i].Load()
	}
	s.Memory = MemoryStatus{RequestBytes: m.buffered[bufferedRequests].Load(), AnswerBytes: m.buffered[bufferedAnswers].Load(), MaxBytes: int64(p.cfg.MaxBufferedBytes)}
	s.LimitsHit = m.limits.counted.some()
}

func (p *Proxy) showDrain(s *Status) {
	if s.Reason != "" {
		s.State = stateNotReady
	}
	if !p.leaving.Load() {
		return
	}
	s.State, s.Reason = stateDraining, "the proxy was asked to end"
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Drain = &DrainStatus{Accepting: !p.draining, ConnectionsLeft: len(p.conns), TimeoutSeconds: p.cfg.DrainTimeout.Seconds()}
}

func (p *Proxy) showListeners(s *Status) {
	s.Listeners = make([]ListenerStatus, 0, len(p.topology.entrances))
	for _, e := range p.topology.entrances {
		l := ListenerStatus{Name: e.Name, Address: e.address(), TLS: e.TLS != nil, Login: e.Login != nil, Connections: e.clients.Load()}
		if e.ServerNames != nil {
			l.ServerNames = e.ServerNames.Domain
		}
		s.Listeners = append(s.Listeners, l)
	}
}

func (p *Proxy) showBrokers(s *Status) {
	known, live := *p.topology.known.Load(), *p.topology.live.Load()
	hidden := map[int32]hidings{}
	nodes := slices.Collect(maps.Keys(known))
	for way, of := range p.topology.hiddenNow() {
		if hidden[way.node] == nil {
			hidden[way.node] = hidings{}
			if _, served := known[way.node]; !served {
				nodes = append(nodes, way.node)
			}
		}
		hidden[way.node][way] = of
	}
	slices.Sort(nodes)
	if len(nodes) > shownBrokers {
		s.BrokersLeftOut = len(nodes) - shownBrokers
		nodes = nodes[:shownBrokers]
	}
	s.Brokers = make([]BrokerStatus, 0, len(nodes))
	for _, node := range nodes {
		broker := known[node] // nothing, if it is hidden from all
		_, inCluster := slices.BinarySearch(live, node)
		b := BrokerStatus{Node: node, Upstream: broker.upstream, InCluster: inCluster, State: brokerUntried, Addresses: map[string]string{}}
		for _, e := range p.topology.entrances {
			if at, ok := broker.atEntrance(e); ok {
				b.Addresses[e.Name] = at.String()
			} else if of, is := hidden[node][doorway{node, e.index}]; is {
				if b.Hidden == nil {
					b.Hidden = map[string]string{}
				}
				b.Hidden[e.Name], b.Upstream = of.why(), cmp.Or(b.Upstream, of.upstream)
			}
		}
		switch r := p.reached.of(node); {
		case r.failure != "":
			b.State, b.ReachedAt, b.FailedAt, b.Failure = brokerFailing, whenever(r.reached), whenever(r.failed), r.failure
		case !r.reached.IsZero():
			b.State, b.ReachedAt, b.FailedAt = brokerReached, whenever(r.reached), whenever(r.failed)
		}
		b.MarksBy, b.Problem = p.fencing.kinds.shown(node)
		s.Brokers = append(s.Brokers, b)
	}
}

func whenever(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// shown names a broker's kind, and says what is wrong with it.
func (b *kindBook) shown(node int32) (marksBy, problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch kind, ok := b.usableLocked(node, 0); {
	case !ok:
		return kindUnlearnt, ""
	case kind.refusal != "":
		return kindRefused, shortened(kind.refusal)
	default:
		return markingName(kind.marking), shortened(kind.unknown)
	}
}

// Words of the configuration for modes, replays and encodings.
var (
	modeWords     = map[Mode]string{ModeOff: "off", ModeObserve: "observe", ModeEnforce: "enforce", ModeRequire: "require"}
	replayWords   = map[Replay]string{ReplayID: "id", ReplayContent: "content", ReplayOff: "off"}
	encodingWords = map[Encoding]string{EncodingDecimal: "decimal", EncodingInt64: "int64"}
)

func (p *Proxy) showRules(s *Status) {
	book := p.rules.inForce()
	s.DefaultMode, s.RulesSettling = modeWords[book.otherwise], !book.settled()
	rules := book.configured
	if len(rules) > shownRules {
		s.RulesLeftOut = len(rules) - shownRules
		rules = rules[:shownRules]
	}
	s.Rules = make([]RuleStatus, 0, len(rules))
	for i := range rules {
		s.Rules = append(s.Rules, rules[i].status())
	}
}

// status shows a rule; its defaults are filled in.
func (r *Rule) status() RuleStatus {
	shown := RuleStatus{Topics: shortened(r.Topics), TopicsRegexp: shortened(r.TopicsRegexp), Mode: modeWords[r.Mode], Options: map[string]string{}}
	o, usual := r.Options, RuleOptions{}.inForce()
	if o.ErrorCode != usual.ErrorCode {
		shown.Options["error_code"] = strconv.Itoa(int(o.ErrorCode))
	}
	if o.Replay != usual.Replay {
		shown.Options["replay"] = replayWords[o.Replay]
	}
	if o.ExpectedOffsetHeader != usual.ExpectedOffsetHeader {
		shown.Options["expected_offset_header"] = o.ExpectedOffsetHeader
	}
	if o.AppendIDHeader != usual.AppendIDHeader {
		shown.Options["append_id_header"] = o.AppendIDHeader
	}
	if o.Encoding != usual.Encoding {
		shown.Options["expected_offset_encoding"] = encodingWords[o.Encoding]
	}
	if o.AllowOldTimestamps {
		shown.Options["old_timestamps"] = "allow"
	}
	return shown
}

// troubled gives topics with which something is wrong.
func (b *topicBook) troubled() map[string]TopicStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.problems)
}

// all gives what was counted, by name.
func (c counts) all() map[string]int64 {
	all := make(map[string]int64, len(c))
	for name, n := range c {
		all[name] = n.Load()
	}
	return all
}

// some is all without what was never counted.
func (c counts) some() map[string]int64 {
	some := c.all()
	maps.DeleteFunc(some, func(_ string, n int64) bool { return n == 0 })
	return some
}

// shortened bounds a text, at a boundary of characters.
func shortened(text string) string {
	if len(text) <= shownText {
		return text
	}
	end := shownText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
