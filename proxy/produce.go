package proxy

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// A batch is held for at most half of its request's timeout. longestHold
// bounds that, since clients choose their timeouts; untimedHold is for requests
// without one, as some send with acks 0 and 1.
const (
	longestHold = time.Minute
	untimedHold = 500 * time.Millisecond
)

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
		f.metrics.limit(limitPartitions)
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
	x, err := f.newExchange(c, h, view)
	if err != nil {
		return err
	}
	for i := range x.entries {
		x.refuse(&x.entries[i], kerr.NotLeaderForPartition.Code, message)
	}
	return nil
}

// newExchange makes room for the request's results, and its slot.
func (f *fencing) newExchange(c *conn, h wire.RequestHeader, view *wire.Produce) (*exchange, error) {
	x := &exchange{
		c: c, version: h.APIVersion, clientID: h.ClientID, arrived: instant(),
		timeout: time.Duration(max(view.TimeoutMillis, 0)) * time.Millisecond,
		signal:  make(chan struct{}, 1),
		entries: make([]entry, len(view.Partitions)), topicOf: make([]int, len(view.Partitions)),
		open: len(view.Partitions),
	}
	last := -1
	for i := range view.Partitions {
		p := &view.Partitions[i]
		if p.TopicIndex != last {
			last = p.TopicIndex
			t := kmsg.NewProduceResponseTopic()
			t.TopicID = p.TopicID
			if view.Version < 13 {
				t.Topic = string(p.Topic)
			}
			x.topics = append(x.topics, t)
		}
		x.topicOf[i] = len(x.topics) - 1
		e := &x.entries[i]
		e.x, e.index = x, i
		e.result = kmsg.NewProduceResponseTopicPartition()
		e.result.Partition = p.Partition
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

// admit examines each partition: what is not to be fenced is ready, what is
// wrong is refused, and what is fenced goes to its lane.
func (f *fencing) admit(x *exchange, view *wire.Produce, rules []*rule) {
	hold := min(x.timeout/2, longestHold)
	if x.timeout == 0 {
		hold = untimedHold
	}
	f.askRights(x.c, view, rules, x.clientID)
	seen := map[ps.Key]bool{}
	for i := range view.Partitions {
		p, e := &view.Partitions[i], &x.entries[i]
		e.rule = rules[i]
		if !e.rule.fenced() {
			e.watched = f.observed(x.c, view, p, e.rule)
			x.mu.Lock()
			e.state = entryReady
			x.mu.Unlock()
			continue
		}
		key, code, message := ps.Key{}, kerr.UnknownTopicID.Code, ""
		if e.rule != unknownTopic {
			key, code, message = f.examine(x.c, view, p, e)
		}
		if code == 0 && seen[key] {
			code, message = kerr.InvalidRequest.Code, "the partition is named twice in one request"
		}
		if code != 0 {
			f.metrics.refused(code, x.c.rights.denied[string(p.Topic)])
			f.logRefusal(x.c, p, code, message)
			x.refuse(e, code, message)
			if code == kerr.NotLeaderForPartition.Code && isIdempotent(p.Records) {
				// What its client has pipelined behind it must not come before it, and
				// might: by then the proxy may know what it did not find out just now.
				x.c.closeAfter(errOutOfTurn)
			}
			continue
		}
		seen[key] = true
		e.ticket.Connection = x.c.id
		e.ticket.Node = ps.NodeID(x.c.node)
		e.ticket.ConnOpened = max(x.c.openedAt, x.book.notBefore(e.rule))
		e.ticket.HoldUntil = x.arrived.Add(hold)
		e.ticket.AnswerWithin = x.timeout + answerGrace
		e.ticket.Owner = e
		e.records = p.Records
		e.lane = f.lane(key)
		x.admitOrPutOff(e)
	}
}

// examine reads a partition under a rule and fills in the entry's batch, or
// says how it is refused: nothing of it has been sent.
func (f *fencing) examine(c *conn, view *wire.Produce, p *wire.ProducePartition, e *entry) (ps.Key, int16, string) {
	if view.TransactionalID != nil {
		return ps.Key{}, kerr.TopicAuthorizationFailed.Code, messageTransactional
	}
	if p.Topic == nil {
		return ps.Key{}, kerr.NotLeaderForPartition.Code, "the topic's name cannot be found out now; send again"
	}
	if c.node == unknownNode {
		return ps.Key{}, kerr.NotLeaderForPartition.Code, "this connection is not to a known broker; send to the partition's leader"
	}
	header, code, message := f.examineHeader(view, p)
	if code != 0 {
		return ps.Key{}, code, message
	}
	if code, message := c.refusedRight(p.Topic); code != 0 {
		return ps.Key{}, code, message
	}
	if code, message := f.examineBroker(c, view, e); code != 0 {
		return ps.Key{}, code, message
	}
	topic, err := f.topicOf(c, string(p.Topic), p.Partition)
	switch {
	case isUnknownTopic(err):
		return ps.Key{}, kerr.UnknownTopicOrPartition.Code, ""
	case err != nil:
		return ps.Key{}, kerr.NotLeaderForPartition.Code, "the topic cannot be looked up now; send again"
	case topic.refusal != "":
		return ps.Key{}, kerr.PolicyViolation.Code, "topic is not served: " + topic.refusal
	case !topic.has(p.Partition):
		return ps.Key{}, kerr.UnknownTopicOrPartition.Code, ""
	}
	id := topic.id
	e.idempotent(c, header)
	if code, message := f.inspect(header, p.Records, &topic, e); code != 0 {
		f.refusedBefore(ps.Key{Topic: string(p.Topic), ID: id, Partition: p.Partition}, e)
		return ps.Key{}, code, message
	}
	if view.Version >= 13 {
		if id != p.TopicID {
			f.topics.forget(string(p.Topic))
			if isIdempotent(p.Records) {
				c.closeAfter(errOutOfTurn) // as after a lookup that fails
			}
			return ps.Key{}, kerr.UnknownTopicID.Code, "the topic was created anew"
		}
	}
	return ps.Key{Topic: string(p.Topic), ID: id, Partition: p.Partition}, 0, ""
}

// examineHeader reads a batch's header, or says how the batch is refused for it.
func (f *fencing) examineHeader(view *wire.Produce, p *wire.ProducePartition) (wire.BatchHeader, int16, string) {
	if view.Version < oldestStamped {
		return wire.BatchHeader{}, kerr.UnsupportedForMessageFormat.Code, "the topic is fenced: Produce version 3 or later is needed"
	}
	header, err := wire.ParseBatch(p.Records)
	switch {
	case err != nil:
		return header, kafkaCode(err), err.Error()
	case header.Transactional():
		return header, kerr.TopicAuthorizationFailed.Code, messageTransactional
	case header.ProducerID >= 0 && header.BaseSequence < 0:
		return header, kerr.InvalidRecord.Code, messageNoSequence
	case header.ProducerID == f.fenceID:
		return header, kerr.InvalidRecord.Code, "the producer id is the proxies' own; use another"
	}
	return header, 0, ""
}

// inspect reads the batch's records for their conditions and digests.
func (f *fencing) inspect(header wire.BatchHeader, batch []byte, topic *fencedTopic, e *entry) (int16, string) {
	found, err := f.inspectRecords(e.rule, header, batch)
	defer found.done()
	if err != nil {
		return kafkaCode(err), err.Error()
	}
	e.unconditional = found.Kind == wire.Unconditional
	if found.Kind == wire.Conditional {
		e.ticket.Expected = ps.Offset(found.Expected)
	} else {
		e.ticket.AtEnd, e.ticket.Expected = true, ps.NoOffset
	}
	switch {
	case found.Kind == wire.Unconditional && e.rule.mode == ModeRequire:
		return kerr.InvalidRecord.Code, e.rule.messageNoCondition()
	case topic.appendTime && found.Kind == wire.Conditional && !found.AllAppendIDs:
		return kerr.InvalidRecord.Code, "the topic has LogAppendTime, where equal records cannot be told apart: give every record an append-id header" + e.rule.namedAppendID()
	case topic.typeUnknown && found.Kind == wire.Conditional && !found.AllAppendIDs:
		return kerr.InvalidRecord.Code, messageTypeUnknown + e.rule.namedAppendID()
	case e.ticket.Marking == fence.MarkNone && found.Kind == wire.Conditional && !found.AllAppendIDs:
		return kerr.InvalidRecord.Code, messageUnmarked
	}
	if code, message := f.checkTimestamps(found.Inspection, topic, e.rule); code != 0 {
		return code, message
	}
	records := make([]ps.Record, len(found.Digests))
	for i, d := range found.Digests {
		records[i] = ps.Record{Digest: d, AppendID: found.AllAppendIDs}
	}
	e.maxTime = found.MaxTimestamp
	e.appendTime = topic.appendTime
	e.ticket.Records = records
	e.ticket.Replay = e.rule.replay
	e.ticket.MaxTimestamp = ps.Timestamp(found.MaxTimestamp)
	e.ticket.FirstTimestamp = ps.Timestamp(found.FirstTimestamp)
	return 0, ""
}

// checkTimestamps refuses batches with which the fence's producer state would
// expire at once, or whose duplicates could not be told from appends.
func (f *fencing) checkTimestamps(found wire.Inspection, topic *fencedTopic, r *rule) (int16, string) {
	if found.MinTimestamp < 0 {
		return kerr.InvalidTimestamp.Code, "records of a fenced topic need a timestamp"
	}
	oldest := f.core.Load().OldestTimestamp()
	age := now().Wall.Sub(ps.Timestamp(found.MaxTimestamp))
	if !topic.appendTime && age > oldest && !r.options.AllowOldTimestamps {
		return kerr.InvalidTimestamp.Code, fmt.Sprintf(
			"timestamps are older than %s, half of %s: the brokers would forget the fence; load old events into a topic with LogAppendTime", oldest, configProducerExpiry)
	}
	return 0, ""
}

// send sends what is ready and then waits for what the fence holds, sending
// each part as it becomes ready. When it returns, the frame is not needed any
// more.
func (x *exchange) send(frame []byte, view *wire.Produce) error {
	defer x.letGo()
	for first := true; ; first = false {
		ready, held := x.takeReady()
		if len(ready) > 0 {
			waited := !first || !x.c.lookupUntil.IsZero()
			if waited && x.c.clientGone() {
				x.lost(ready, errNotSent)
				x.cancel()
				return errClientClosed
			}
			if err := x.sendPiece(frame, view, ready); err != nil {
				x.cancel()
				return err
			}
		}
		if !held {
			return nil
		}
		if err := x.c.flushUpstream(); err != nil {
			x.cancel()
			return err
		}
		if err := x.awaitChange(); err != nil {
			x.cancel()
			return err
		}
	}
}

// awaitChange waits until something became ready or was decided, or until more
// of what was put off can be admitted.
func (x *exchange) awaitChange() error {
	var admit <-chan time.Time
	if wait := x.admitPutOff(); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		admit = timer.C
	}
	select {
	case <-x.signal:
	case <-admit:
	case <-x.c.ctx.Done():
		return context.Cause(x.c.ctx)
	}
	return nil
}

// takeReady marks the ready entries as sent and tells whether others are held,
// or may have to be sent again. If none is, this was the last piece, and the fence is told so from then on:
// an entry that it makes ready afterwards would wait for its sending for ever.
func (x *exchange) takeReady() (ready []int, held bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.entries {
		e := &x.entries[i]
		if e.state == entryReady {
			e.state = entrySent
			ready = append(ready, i)
		}
		held = held || e.state == entryHeld || e.state == entrySent && e.mayResend()
	}
	x.released = x.released || !held
	return ready, held
}

// letGo drops what aliases the frame.
func (x *exchange) letGo() {
	x.clientID = nil
	for i := range x.entries {
		x.entries[i].records = nil
	}
}

// sendPiece stamps the fenced ones among the entries and sends them upstream:
// the frame as it came if that is all of it, else a request of their own. A
// request whose acks differ from those that fenced partitions need is split.
func (x *exchange) sendPiece(frame []byte, view *wire.Produce, indexes []int) error {
	var fenced, plain []int
	for _, i := range indexes {
		e := &x.entries[i]
		if e.lane == nil {
			plain = append(plain, i)
			continue
		}
		fenced = append(fenced, i)
		if !e.unstamped {
			wire.Stamp(e.records, e.lane.f.fenceID, e.epoch, e.sequence, e.maxTime)
		}
	}
	acks := view.Acks
	if len(plain) == 0 || acks == allAcks {
		return x.sendSome(frame, view, indexes, x.fencedAcks(acks, fenced))
	}
	if err := x.sendSome(frame, view, fenced, x.fencedAcks(acks, fenced)); err != nil || len(fenced) == len(indexes) {
		return err
	}
	return x.sendSome(frame, view, plain, acks)
}

// allAcks asks the broker to answer when all in-sync replicas have it.
const allAcks = -1

func (x *exchange) fencedAcks(acks int16, fenced []int) int16 {
	if len(fenced) > 0 {
		return allAcks
	}
	return acks
}

func (x *exchange) sendSome(frame []byte, view *wire.Produce, indexes []int, acks int16) error {
	if len(indexes) == 0 {
		return nil
	}
	if len(indexes) == len(x.entries) {
		view.PatchAcks(acks)
		view.PatchTimeout(x.timeLeft())
	} else {
		frame = view.AppendFrame(nil, x.clientID, 0, acks, x.timeLeft(), indexes)
	}
	if acks == 0 {
		if err := x.c.sendUpstream(frame, nil); err != nil {
			return x.notSent(indexes, err)
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, i := range indexes {
			x.doneLocked(&x.entries[i])
		}
		return nil
	}
	err := x.c.sendUpstream(frame, func(answer []byte, err error) { x.answered(indexes, answer, err) })
	if err != nil {
		return x.notSent(indexes, err)
	}
	return nil
}

func (x *exchange) notSent(indexes []int, err error) error {
	x.lost(indexes, fmt.Errorf("%w: %w", errNotSent, err))
	return err
}

// timeLeft is what is left of the request's timeout, in milliseconds; at
// least 1 of it, unless it had none.
func (x *exchange) timeLeft() int32 {
	if x.timeout == 0 {
		return 0
	}
	left := x.timeout - instant().Sub(x.arrived)
	return int32(max(left.Milliseconds(), 1))
}

// oldestStamped is the Produce version that brought record batches. Answers to
// versions before 2 do not tell a duplicate from an append.
const oldestStamped = 3

// brokerAnswer is what a broker said of a stamped batch. Versions before 5
// have no log start.
func brokerAnswer(r *kmsg.ProduceResponseTopicPartition, version int16) fence.Answer {
	a := fence.Answer{
		Code: r.ErrorCode, BaseOffset: ps.Offset(r.BaseOffset),
		LogAppendTime: ps.Timestamp(r.LogAppendTime), LogStart: ps.NoOffset,
	}
	if version >= 5 {
		a.LogStart = ps.Offset(r.LogStartOffset)
	}
	return a
}
