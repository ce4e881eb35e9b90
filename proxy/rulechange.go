package proxy

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// When a topic comes under the fence, what was sent to it before is on its way
// without a stamp, and lands between a view and the batch that is stamped by it:
//
//	A  Produce, no rule ─────────────────────────▶ appended at 7
//	   the rule begins
//	B      view: the log ends at 7, stamp 7 ──▶ expected 7, appended at 8
//
// When it leaves the fence, the same happens the other way round. So a request to a
// topic that has changed sides waits until all that was judged by rules before the
// change is answered, and no view begun before that is used for it.

const (
	// settleMax is for how long what was judged by earlier rules is waited for.
	settleMax = 10 * time.Second
	// erasKept bounds the rules of the past by which views are judged.
	erasKept = 16
)

// currentRules are the rules in force. Safe for concurrent use.
type currentRules struct {
	cfg    *Config
	full   func()
	logger *slog.Logger
	book   atomic.Pointer[ruleBook]
	// changing is held while the rules are changed.
	changing sync.Mutex
	// after is time.AfterFunc, but in tests.
	after func(time.Duration, func())
}

func newCurrentRules(cfg *Config, m *metrics) *currentRules {
	c := &currentRules{cfg: cfg, full: func() { m.limit(limitRuleTopics) }, logger: cfg.Logger}
	c.after = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	c.book.Store(newRuleBook(cfg, c.full))
	m.rules.Store(c)
	return c
}

// inForce are the rules in force, to look at.
func (c *currentRules) inForce() *ruleBook { return c.book.Load() }

// take gives the rules that a request which is read now is judged by. It takes
// them once, so that no part of it is judged by others, and leaves them when it is
// done with.
func (c *currentRules) take() *ruleBook {
	for {
		if b := c.book.Load(); b.enter() {
			return b
		}
	}
}

// headers are the record headers that a topic's rule looks for. What is read from
// the log is compared by digests, which are the same by any names.
func (c *currentRules) headers(topic string) wire.HeaderNames {
	return c.inForce().rule([]byte(topic)).options.names()
}

// ChangeRules puts other rules, and another mode of topics that none of them
// matches, in the place of those of the configuration. Each request is judged by
// those that are in force when it is read, as a whole. What is known of
// partitions and clients stays. Rules that are those in force change nothing. It may
// be called at any time and from any goroutine; of concurrent calls the last one
// counts. The error is a *ConfigError with the field as in Config; then nothing has
// changed.
func (p *Proxy) ChangeRules(rules []Rule, otherwise Mode) error {
	changed := p.cfg
	changed.Rules, changed.Default = rules, otherwise
	if err := changed.checkRules(); err != nil {
		return err
	}
	if p.rules.replace(newRuleBook(&changed, p.rules.full)) {
		p.fencing.topics.forgetRefused()
		p.fencing.stir()
	}
	return nil
}

// replace puts a book in force; false: it says what the one in force says, which
// stays.
func (c *currentRules) replace(next *ruleBook) bool {
	c.changing.Lock()
	defer c.changing.Unlock()
	before := c.book.Load()
	if before.otherwise == next.otherwise && slices.Equal(before.configured, next.configured) {
		c.logger.Debug("the rules are those in force, so nothing has changed", "rules", len(next.configured))
		return false
	}
	next.from = max(instant(), before.from+1)
	// Views older than this are not used, whatever the rules were.
	oldest := next.from.Add(-max(c.cfg.ViewMaxAge, 2*settleMax))
	next.past = append(next.past, era{before.from, before.rules, before.fallback})
	next.constant = before.constant
	until := before.from
	for _, e := range before.past {
		if until < oldest {
			break
		}
		if len(next.past) == erasKept {
			next.constant = until
			break
		}
		next.past = append(next.past, e)
		until = e.from
	}
	var earlier []*ruleBook
	for _, e := range before.unsettled() {
		if !e.over() {
			earlier = append(earlier, e)
		}
	}
	earlier = append(earlier, before)
	next.earlier.Store(&earlier)
	next.settledAt.Store(0)
	before.replacedAt.Store(int64(next.from))
	c.book.Store(next)
	before.leave()
	return true
}

// era is a time during which rules did not change.
type era struct {
	from     ps.Instant
	rules    []*rule
	fallback *rule
}

func (e *era) fenced(topic string) bool { return match(e.rules, e.fallback, topic).fenced() }

// since is when the topic came to the side of the fence on which it is; 0: it has
// been there for as long as matters.
func (b *ruleBook) since(topic string, fenced bool) ps.Instant {
	start := b.from
	for i := range b.past {
		if b.past[i].fenced(topic) != fenced {
			return start
		}
		start = b.past[i].from
	}
	return b.constant
}

// enter has one more request be judged by the book; false: another is in force.
func (b *ruleBook) enter() bool {
	for {
		n := b.inWork.Load()
		if n == 0 {
			return false
		}
		if b.inWork.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave ends what enter began: the request is answered, or will get no answer.
func (b *ruleBook) leave() {
	if b.inWork.Add(-1) == 0 {
		close(b.done)
	}
}

// leave ends what enter began. A request that strays was lost with its connection
// when it had left for the broker, where it may still arrive: it is waited for like
// one that is not answered.
func (c *currentRules) leave(b *ruleBook, strays bool) {
	if strays {
		c.after(settleMax, b.leave)
		return
	}
	b.leave()
}

// over reports whether nothing that the book has judged is waited for.
func (b *ruleBook) over() bool {
	select {
	case <-b.done:
		return true
	default:
		return instant() >= b.overdue()
	}
}

// overdue is when its requests are not waited for any more, once it was replaced.
func (b *ruleBook) overdue() ps.Instant { return ps.Instant(b.replacedAt.Load()).Add(settleMax) }

// unsettled are the books before this one whose requests are waited for, perhaps.
func (b *ruleBook) unsettled() []*ruleBook {
	if earlier := b.earlier.Load(); earlier != nil {
		return *earlier
	}
	return nil
}

// settled reports whether nothing that earlier rules have judged is waited for.
func (b *ruleBook) settled() bool {
	if b.settledAt.Load() != 0 {
		return true
	}
	for _, e := range b.unsettled() {
		if !e.over() {
			return false
		}
	}
	b.settledAt.CompareAndSwap(0, int64(instant()))
	b.earlier.Store(nil)
	return true
}

// notBefore is when the readings may begin by which a topic's batches are stamped:
// from then on nothing that this proxy has sent otherwise is on its way.
func (b *ruleBook) notBefore(r *rule) ps.Instant {
	switch at := ps.Instant(b.settledAt.Load()); {
	case r.since == 0:
		return 0
	case at != 0:
		return max(at, r.since)
	}
	return instant()
}

// awaitSettled waits, where a topic of the request has changed sides, until what
// was judged before is answered. It runs on the clientLoop.
func (f *fencing) awaitSettled(c *conn, book *ruleBook, rules []*rule) error {
	if book.settled() {
		return nil
	}
	for _, r := range rules {
		if r.since == 0 {
			continue
		}
		for _, e := range book.unsettled() {
			if e.from >= r.since || e.over() {
				continue
			}
			if err := f.awaitBook(c, e); err != nil {
				return err
			}
		}
	}
	book.settled()
	return nil
}

func (f *fencing) awaitBook(c *conn, e *ruleBook) error {
	if err := c.flushUpstream(); err != nil {
		return err
	}
	overdue := time.NewTimer(e.overdue().Sub(instant()))
	defer overdue.Stop()
	select {
	case <-e.done:
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	case <-overdue.C:
		if !e.complained.Swap(true) {
			f.logger.Warn("requests that were judged by earlier rules are not answered or were lost with their connections, and are waited for no longer: on topics that have come under a rule or left it, one of them may take the place that a batch was promised, which is then told and counted",
				"requests", e.inWork.Load(), "waited", settleMax)
		}
	}
	return nil
}

// outlived reports whether the rest of a request that it has judged is not forwarded
// any more: others have been in force for too long.
func (b *ruleBook) outlived() bool {
	at := b.replacedAt.Load()
	return at != 0 && instant() >= ps.Instant(at).Add(stragglerMax)
}

// concernedBy reports whether a Produce has to be looked at: a rule may be for it, or
// may have been for one that is not answered.
func (c *conn) concernedBy(book *ruleBook) bool {
	return book.most > ModeOff || c.rulesFrom != 0 && c.rulesFrom < book.from || !book.settled()
}

// producedUnder notes by which rules a Produce is judged. The first counts: later
// ones, of other topics perhaps, do not undo what was sent before a change.
func (c *conn) producedUnder(book *ruleBook) {
	if c.rulesFrom == 0 {
		c.rulesFrom = book.from
	}
}

// crosses reports whether an idempotent client has sent, on this connection, before
// a topic of the request changed sides: what it has pipelined would be held against
// its order by the broker before the change and by the proxy after it, which do not
// know of each other.
func (c *conn) crosses(view *wire.Produce, rules []*rule) bool {
	if c.rulesFrom == 0 || view.Acks == 0 {
		return false
	}
	for i, r := range rules {
		if c.rulesFrom < r.since && isIdempotent(view.Partitions[i].Records) {
			return true
		}
	}
	return false
}

// leaveRules leaves what the request at hand is judged by, if nobody who is to
// answer it has taken that over.
func (c *conn) leaveRules() {
	if c.taken != nil {
		c.taken.leave()
		c.taken = nil
	}
}

// takeOver gives the rules of the request at hand to whoever leaves them when it is
// answered.
func (c *conn) takeOver() *ruleBook {
	b := c.taken
	c.taken = nil
	return b
}

// tend learns the kinds of brokers, if there is any use for them.
func (f *fencing) tend() {
	if f.rules.inForce().most > ModeOff {
		f.kinds.tend()
	}
}
