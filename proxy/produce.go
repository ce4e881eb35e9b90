package proxy

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/offsetproxy/offsetproxy/wire"
)

// A batch is held for at most half of its request's timeout. Config.LongestHold
// bounds that, since clients choose their timeouts; untimedHold is for requests
// without one, as some send with acks 0 and 1.
const untimedHold = 500 * time.Millisecond

// produce takes over a Produce request if at least one of its partitions is to
// be fenced. frame is the whole frame with its 4 length bytes; it is changed
// in place. If handled, the request's slot is made (unless acks=0) and all that
// was to be sent is sent; if not, the request is to be relayed as it is. An
// error ends the connection as closeAfter does. It runs on the clientLoop.
func (f *fencing) produce(c *conn, book *ruleBook, h wire.RequestHeader, frame []byte) (bool, error) {
	view := &c.produceView
	if err := view.Parse(frame[4+h.BodyOffset:], h.APIVersion); err != nil {
		if !book.fences() {
			return false, nil // the broker will say so
		}
		return false, malformed(reasonProduce, "Produce v%d: %v", h.APIVersion, err)
	}
	c.arriving.Tell(view, h.BodyOffset)
	rules, most := f.rulesOf(c, book, view)
	if c.crosses(view, rules) {
		if err := f.giveBack(c, h, view, "not appended, send again: the topic's rule has changed"); err != nil {
			return true, err
		}
		return true, errRulesChanged
	}
	c.producedUnder(book)
	if err := f.awaitSettled(c, book, rules); err != nil {
		return true, err
	}
	if most < ModeEnforce {
		c.watching = f.watch(c, view, rules)
		return false, nil
	}
	if n := len(view.Partitions); n > f.maxPartitions {
		f.metrics.limit(limitPartitions, "remote", c.remote(), "partitions", n)
		return false, malformed(reasonProduce, "Produce of %d partitions, some under a rule; at most %d", n, f.maxPartitions)
	}
	x, err := f.newExchange(c, h, view)
	if err != nil {
		return true, err
	}
	f.admit(x, view, rules)
	return true, x.send(frame, view)
}

// unreachable answers a Produce request with fenced partitions whose broker
// cannot be dialled: surely nothing was sent, which a closed connection would
// leave open. Other requests get no answer, as from a broker that is down.
func (f *fencing) unreachable(c *conn, book *ruleBook, h wire.RequestHeader, frame []byte) error {
	view := &c.produceView
	if err := view.Parse(frame[4+h.BodyOffset:], h.APIVersion); err != nil {
		return malformed(reasonProduce, "Produce v%d: %v", h.APIVersion, err)
	}
	if _, most := f.rulesOf(c, book, view); most < ModeEnforce || view.Acks == 0 {
		return nil
	}
	return f.giveBack(c, h, view, "not appended, send again: the broker cannot be reached")
}

// giveBack has a client send a request again of which nothing was sent.
func (f *fencing) giveBack(c *conn, h wire.RequestHeader, view *wire.Produce, message string) error {
	return f.refuseAll(c, h, view, kerr.NotLeaderForPartition.Code, message)
}

// refuseAll answers a request of which nothing was sent.
func (f *fencing) refuseAll(c *conn, h wire.RequestHeader, view *wire.Produce, code int16, message string) error {
	x, err := f.newExchange(c, h, view)
	if err != nil {
		return err
	}
	for i := range x.entries {
		x.refuse(&x.entries[i], code, message)
	}
	return nil
}

// newExchange makes room for the request's results, and its slot.
func (f *fencing) newExchange(c *conn, h wire.RequestHeader, view *wire.Produce) (*exchange, error) {
	x := makeExchange(len(view.Partitions))
	x.c, x.version, x.clientID = c, h.APIVersion, h.ClientID
	x.via = f.carrierOf(c)
	x.timeout = time.Duration(max(view.TimeoutMillis, 0)) * time.Millisecond
	x.signal = c.changed
	c.waited = false
	x.at = now()
	x.arrived = x.at.Instant
	last := -1
	for i := range view.Partitions {
		p := &view.Partitions[i]
		if p.TopicIndex != last {
			last = p.TopicIndex
			t := exchangeTopic{id: p.TopicID}
			if view.Version < 13 {
				t.name = c.rights.nameOf(p.Topic)
			}
			x.topics = append(x.topics, t)
		}
		x.topics[len(x.topics)-1].count++
		e := &x.entries[i]
		e.x, e.index, e.topic = x, i, len(x.topics)-1
		e.result = wire.ProduceResult{Partition: p.Partition, BaseOffset: -1, LogAppendTime: -1, LogStartOffset: -1}
	}
	if view.Acks != 0 {
		s, err := c.newSlot(h.CorrelationID)
		if err != nil {
			return nil, err
		}
		x.slot = s
	}
	x.book = c.takeOver()
	return x, nil
}

// carrierOf is what takes a connection's pieces upstream.
func (f *fencing) carrierOf(c *conn) carrier {
	if f.carry != nil {
		return f.carry(c)
	}
	return ownUpstream{c}
}

// loggedRefusals is how many partitions of a request are named in the log that are
// refused before the fence sees them: a client can name thousands. Metrics count all.
const loggedRefusals = 10

// admit examines each partition: what is not to be fenced is ready, what is
// wrong is refused, and what is fenced goes to its lane.
func (f *fencing) admit(x *exchange, view *wire.Produce, rules []*rule) {
	hold := min(x.timeout/2, x.c.p.cfg.LongestHold)
	if x.timeout == 0 {
		hold = untimedHold
	}
	f.askRights(x, view, rules)
	node, openedAt := x.via.route()
	sight := topicSight{index: -1}
	defer func() { clear(x.c.admitted) }() // it holds lanes
	logged := 0
	for i := range view.Partitions {
		p, e := &view.Partitions[i], &x.entries[i]
		e.rule = rules[i]
		if !e.rule.fenced() {
			e.watched = f.observed(x.c, view, p, e.rule)
			x.sendPlain(e)
			continue
		}
		code, message := kerr.UnknownTopicID.Code, ""
		if e.rule != unknownTopic {
			code, message = f.examine(view, p, e, &sight)
		}
		if code == 0 {
			e.lane = f.lane(sight.key(p.Partition))
			if x.namedBefore(e.lane) {
				e.lane.users.Add(-1)
				e.lane = nil
				code, message = kerr.InvalidRequest.Code, "the partition is named twice in one request"
			} else {
				f.metrics.inFlight.Add(1)
			}
		}
		if code != 0 {
			f.metrics.refused(p.Topic, code, x.c.rights.denied[string(p.Topic)])
			if logged++; logged <= loggedRefusals {
				f.logRefusal(x.c, p, code, message)
			}
			x.c.waited = true // the log may have blocked: the time that was read is of before
			x.refuse(e, code, message)
			if code == kerr.NotLeaderForPartition.Code && isIdempotent(p.Records) {
				// What its client has pipelined behind it must not come before it, and
				// might: by then the proxy may know what it did not find out just now.
				x.c.closeAfter(errOutOfTurn)
			}
			continue
		}
		e.ticket.Connection = x.c.id
		e.ticket.Node = node
		e.ticket.ConnOpened = max(openedAt, x.book.notBefore(e.rule))
		e.ticket.HoldUntil = x.arrived.Add(hold)
		e.ticket.AnswerWithin = x.timeout + answerGrace
		e.ticket.Owner = e
		e.records = p.Records
		x.admitOrPutOff(e)
	}
}

// namedBefore reports whether the request at hand has named a lane's partition
// before, and notes that it has now.
func (x *exchange) namedBefore(l *lane) bool {
	if len(x.entries) == 1 {
		return false
	}
	if x.c.admitted == nil {
		x.c.admitted = make(map[*lane]struct{}, len(x.entries))
	}
	_, before := x.c.admitted[l]
	x.c.admitted[l] = struct{}{}
	return before
}
