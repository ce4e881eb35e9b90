package proxy

import (
	"context"
	"log/slog"
	"time"
)

// hitLogInterval is how often the log tells of each limit at most.
const hitLogInterval = time.Second

// limitHits counts that limits have made connections wait or end, and tells the
// operator, at most once per hitLogInterval for each limit. The log is written by a
// goroutine of its own: hits happen under locks, and where the time has been read that a
// judgement rests on. Its methods may be called concurrently.
type limitHits struct {
	counted counts
	logged  counts // when each was last handed to the log, Unix ns
	// lines are those to be logged, sent by hit and received by run. There is room for
	// one of each limit; what finds none, since the log blocks, is left out.
	lines chan limitLine
}

type limitLine struct {
	name  string
	attrs []any
}

func newLimitHits() *limitHits {
	return &limitHits{counted: newCounts(limitNames), logged: newCounts(limitNames), lines: make(chan limitLine, len(limitNames))}
}

// hit counts a limit; attrs are what the log says besides. It never blocks.
func (h *limitHits) hit(name string, attrs ...any) {
	h.counted[name].Add(1)
	logged := h.logged[name]
	last := logged.Load()
	if now := time.Now().UnixNano(); now-last <= int64(hitLogInterval) || !logged.CompareAndSwap(last, now) {
		return
	}
	select {
	case h.lines <- limitLine{name, attrs}:
	default:
	}
}

// run logs until ctx ends, and then what is left. cfg is in force.
func (h *limitHits) run(ctx context.Context, cfg *Config) {
	values := cfg.limitValues()
	tell := func(l limitLine) {
		words := limitWords[l.name]
		cfg.Logger.Log(context.Background(), words.level, words.message, append(l.attrs, "limit", l.name, "value", values[l.name])...)
	}
	for {
		select {
		case l := <-h.lines:
			tell(l)
		case <-ctx.Done():
			for {
				select {
				case l := <-h.lines:
					tell(l)
				default:
					return
				}
			}
		}
	}
}

// limitWord is what the log says of a limit: a warning where something is refused or
// closed, else only what may be slower for it.
type limitWord struct {
	level   slog.Level
	message string
}

var limitWords = map[string]limitWord{
	limitConnections:   {slog.LevelWarn, "too many connections, turning clients away: raise limits.max_connections, or look who has them"},
	limitAddress:       {slog.LevelWarn, "too many connections of one address, turning it away: raise limits.max_connections_per_address, or look what runs there"},
	limitFrame:         {slog.LevelWarn, "a request is larger than is accepted, closing its connection: raise limits.max_frame if its client is one of yours"},
	limitPending:       {slog.LevelInfo, "a client has as many requests without an answer as it may, so no more of it are read for now: raise limits.max_pending_requests if it needs more"},
	limitHeld:          {slog.LevelInfo, "a connection's answers wait for an earlier one that is not there yet, so no more of them are read for now: raise limits.max_held if others are slow for it"},
	limitRewritten:     {slog.LevelWarn, "an answer that has to be there whole is too large, closing its connection: raise limits.max_rewritten"},
	limitPartitions:    {slog.LevelWarn, "a Produce under a rule names too many partitions, so it is refused or, where the rule only observes, not looked at: raise limits.max_produce_partitions"},
	limitUnpacked:      {slog.LevelWarn, "a batch is too large decompressed, refusing it: raise limits.max_decompressed, or have the client send less at once"},
	limitRuleTopics:    {slog.LevelInfo, "more topics are in use than is remembered which rule is theirs, so patterns are tried anew: raise limits.max_rule_topics"},
	limitAddPartitions: {slog.LevelWarn, "a request that adds partitions to a transaction is too large, closing its connection: raise limits.max_add_partitions"},
	limitTopics:        {slog.LevelInfo, "more topics under a rule are in use than are remembered, so brokers are asked for them anew: raise limits.max_topics"},
	limitUnknown:       {slog.LevelWarn, "a partition has as many appends of unknown outcome as it may, so clients are told to send again: see whether its leader can be reached"},
	limitReadings:      {slog.LevelInfo, "readings of the proxy's own wait for others at the same broker: see whether it is slow, or raise limits.max_readings"},
	limitReading:       {slog.LevelWarn, "a reading of the proxy's own took too long and was given up: see whether the broker is slow, or raise limits.reading_timeout"},
	limitReadBack:      {slog.LevelInfo, "records are read back in several rounds: raise limits.max_read_back if clients wait for it"},
	limitControl:       {slog.LevelWarn, "a broker's answer to the proxy itself is too large: raise limits.max_control_answer above the brokers' largest batch"},
	limitLookup:        {slog.LevelWarn, "what a request's topics are was not known in time, so its client is told to send again: see whether brokers are slow, or raise limits.lookup_timeout"},
	limitAnswer:        {slog.LevelWarn, "a broker did not answer an append within answer_max, so its outcome is unknown: see how the broker is doing"},
	limitOldReads:      {slog.LevelWarn, "a client expects offsets far behind the end again and again, so it is made to wait: have it go on with the next offset that it is told, or raise limits.old_reads_per_second"},
	limitIdleViews:     {slog.LevelInfo, "more partitions and producers have been used than are remembered, so what is known of the oldest is forgotten: raise limits.idle_views and limits.idle_producers"},
	limitProducers:     {slog.LevelInfo, "a partition has more idempotent producers than are remembered, so the oldest is forgotten: raise limits.max_producers, or see who makes so many"},
	limitBuffered:      {slog.LevelWarn, "the memory for frames is used up, so connections wait: raise limits.max_buffered, or have clients send less at once"},
	limitArrival:       {slog.LevelWarn, "a request, or a broker's answer, does not arrive while others wait for the memory that it has, closing its connection"},
	limitWrite:         {slog.LevelWarn, "a client takes no answers, closing its connection"},
	limitMetricTopics:  {slog.LevelInfo, "more topics are in use than have series of their own in metrics, so the others are counted together: raise metrics.max_topics"},
	limitIdle:          {slog.LevelInfo, "nothing has moved on a connection for idle_timeout, closing it"},
}

// limitValues are the limits themselves, by name.
func (c *Config) limitValues() map[string]any {
	return map[string]any{
		limitConnections: c.MaxConnections, limitAddress: c.MaxConnectionsPerAddress, limitFrame: c.MaxFrameBytes,
		limitPending: c.MaxPendingRequests, limitHeld: c.MaxHeldBytes, limitRewritten: c.MaxRewrittenBytes,
		limitPartitions: c.MaxProducePartitions, limitUnpacked: c.MaxDecompressedBytes, limitRuleTopics: c.MaxRuleTopics,
		limitAddPartitions: c.MaxAddPartitionsBytes, limitTopics: c.MaxTopics, limitUnknown: c.MaxUnknown,
		limitReadings: c.MaxReadings, limitReading: c.ReadingTimeout, limitReadBack: c.MaxReadBackBytes, limitControl: c.MaxControlBytes,
		limitLookup: c.LookupTimeout, limitAnswer: c.AnswerMax, limitOldReads: c.OldReadsPerSecond, limitIdleViews: c.IdleViews,
		limitProducers: c.MaxProducers, limitBuffered: c.MaxBufferedBytes, limitArrival: c.ArrivalTimeout, limitWrite: c.WriteTimeout,
		limitIdle: c.IdleTimeout, limitMetricTopics: c.MetricTopics,
	}
}
