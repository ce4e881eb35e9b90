package proxy

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
	"github.com/offsetproxy/offsetproxy/wire"
)

// readView reads the partition's view and feeds it to the fence.
func (l *lane) readView(ctx context.Context, node ps.NodeID) error {
	started := instant()
	begun := started
	at := int32(node)
	var v prober.View
	var err error
	if node == ps.AnyNode {
		at, _, err = l.leader(ctx)
	}
	if err == nil {
		v, err = l.f.pool.ReadViewTelling(ctx, at, l.topic, l.key.Partition, func(highWatermark int64) {
			l.step(now(), func(p *fence.Partition, at ps.Now) []fence.Effect {
				return p.CommittedSeen(at, ps.Offset(highWatermark), begun)
			})
		})
	}
	if errors.Is(err, prober.ErrNotProbed) {
		if err = l.f.kinds.again(ctx, at); err == nil {
			begun = instant()
			v, err = l.f.pool.ReadView(ctx, at, l.topic, l.key.Partition)
		}
	}
	if err != nil {
		l.viewFailed(node, started, err)
		return err
	}
	l.askLeader.Store(false)
	l.f.metrics.viewRead(instant().Sub(started), nil)
	view := ps.View{
		Leader: ps.NodeID(at), LeaderEpoch: ps.LeaderEpoch(v.LeaderEpoch),
		Next: ps.Offset(v.LogEnd), HighWatermark: ps.Offset(v.HighWatermark),
		HasState: v.HasState, Epoch: ps.ProducerEpoch(v.ProducerEpoch),
		StateTimestamp: ps.Timestamp(v.LastTimestamp), FromTail: v.FromTail, ArmAtZero: v.ArmAtZero, At: begun,
	}
	if v.HasState {
		view.Sequence = ps.SequenceAfter(v.LastSequence)
	}
	l.step(now(), func(p *fence.Partition, at ps.Now) []fence.Effect { return p.ViewRead(at, node, view) })
	return nil
}

// viewFailed tells the fence that a view could not be read, which began then.
func (l *lane) viewFailed(node ps.NodeID, started ps.Instant, err error) {
	l.askLeader.Store(true)
	l.f.metrics.viewRead(instant().Sub(started), err)
	code, final := l.f.readingFailed(l.key, err)
	l.step(now(), func(p *fence.Partition, at ps.Now) []fence.Effect { return p.ViewFailed(at, node, code, final) })
}

// leader finds the partition's leader and its epoch: by the last view, or,
// when there is none or the last reading failed, by asking the brokers.
func (l *lane) leader(ctx context.Context) (node, epoch int32, err error) {
	l.mu.Lock()
	v, ok := l.part.State().View()
	l.mu.Unlock()
	if ok && !l.askLeader.Load() {
		return int32(v.Leader), int32(v.LeaderEpoch), nil
	}
	return l.f.findLeader(ctx, l.key.Topic, l.key.Partition)
}

// readRecords reads committed records back and feeds them to the fence.
func (l *lane) readRecords(ctx context.Context, id fence.ReadID, from, upTo ps.Offset) error {
	stored, err := l.readBack(ctx, from, upTo)
	if err != nil {
		l.recordsFailed(id, from, err)
		return err
	}
	l.askLeader.Store(false)
	l.f.compareType(l.key.Topic, &stored)
	l.step(now(), func(p *fence.Partition, at ps.Now) []fence.Effect { return p.RecordsRead(at, id, stored) })
	return nil
}

// recordsFailed tells the fence that committed records could not be read back.
func (l *lane) recordsFailed(id fence.ReadID, from ps.Offset, err error) {
	l.askLeader.Store(true)
	code, final := l.f.readingFailed(l.key, err)
	if unreadable(err) {
		l.f.logger.Warn("stored records cannot be read: batches that expect their offsets are answered as unknown",
			"topic", l.key.Topic, "partition", l.key.Partition, "from", int64(from), "err", err)
		final = true
	}
	l.step(now(), func(p *fence.Partition, at ps.Now) []fence.Effect { return p.RecordsFailed(at, id, code, final) })
}

func (l *lane) readBack(ctx context.Context, from, upTo ps.Offset) (fence.Stored, error) {
	stored := fence.Stored{ReadTo: from, At: instant()}
	node, epoch, err := l.leader(ctx)
	if err != nil {
		return stored, err
	}
	for {
		r, err := l.f.pool.ReadRecords(ctx, node, l.topic, l.key.Partition, epoch, int64(stored.ReadTo), int64(upTo))
		if err != nil {
			return stored, err
		}
		if r.HighWatermark < 0 {
			return stored, errNoHighWatermark
		}
		for _, s := range r.Records {
			stored.Records = append(stored.Records, l.f.storedRecord(s))
		}
		moved := ps.Offset(r.NextOffset) > stored.ReadTo
		stored.ReadTo = ps.Offset(r.NextOffset)
		stored.HighWatermark, stored.LogStart = ps.Offset(r.HighWatermark), ps.Offset(r.LogStart)
		if !moved || stored.ReadTo >= upTo || stored.ReadTo >= stored.HighWatermark {
			return stored, nil
		}
		l.f.metrics.limit(limitReadBack, "topic", l.topic.Name, "partition", l.key.Partition)
	}
}

// compareType has a topic looked up again if the last of the stored records has
// an append time and the topic is taken for one with CreateTime: its type may
// have changed, and writers must be told that they need append-ids.
func (f *fencing) compareType(topic string, s *fence.Stored) {
	if n := len(s.Records); n == 0 || !s.Records[n-1].AppendTime {
		return
	}
	if known, ok := f.topics.peek(topic); ok && !known.appendTime && !known.typeUnknown {
		f.topics.suspect(topic)
	}
}

func (f *fencing) storedRecord(s wire.StoredRecord) fence.StoredRecord {
	b := s.Batch
	r := fence.StoredRecord{
		Offset: ps.Offset(s.Offset), Control: s.Control, AppendTime: b.LogAppendTime(), Timestamp: ps.Timestamp(s.Timestamp),
	}
	if !s.Control {
		r.Record = ps.Record{Digest: s.Digest, AppendID: s.HasAppendID}
	}
	if b.ProducerID == f.fenceID {
		r.ByFence = true
		r.Epoch = ps.ProducerEpoch(b.ProducerEpoch)
		r.Sequence = ps.Sequence(b.BaseSequence).Plus(int(s.Offset - b.BaseOffset))
	}
	return r
}

// readingFailed says what an error of a reading means to the fence: the
// broker's code (0: it said nothing), and whether asking again is in vain.
func (f *fencing) readingFailed(key ps.Key, err error) (code int16, final bool) {
	var refused *prober.BrokerError
	var lacks *prober.UnsupportedError
	switch {
	case errors.As(err, &lacks):
		f.readingsDenied(key, kerr.UnsupportedVersion.Code, err)
		return kerr.UnsupportedVersion.Code, true
	case errors.As(err, &refused):
		switch refused.Code {
		case kerr.TopicAuthorizationFailed.Code, kerr.ClusterAuthorizationFailed.Code:
			f.readingsDenied(key, refused.Code, err)
			return refused.Code, true
		case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.InconsistentTopicID.Code:
			// Deleted, perhaps created anew: what was learnt of it is void.
			f.topics.suspect(key.Topic)
		}
		return refused.Code, false
	}
	return 0, false
}

// unreadable reports whether stored records were found that cannot be read,
// today or tomorrow.
func unreadable(err error) bool {
	for _, why := range []error{wire.ErrOldFormat, wire.ErrTooLarge, wire.ErrCorrupt, wire.ErrBadCRC, prober.ErrAnswerTooLarge} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}

// readingsDenied is said once of a topic: each of its batches ends in it.
func (f *fencing) readingsDenied(key ps.Key, code int16, err error) {
	if !f.denied.first(key.Topic, kerr.ErrorForCode(code).Error()) {
		return
	}
	f.logger.Error("partition cannot be fenced: the proxy may not read what it needs; grant its principal DESCRIBE and READ on the topic",
		"topic", key.Topic, "partition", key.Partition, "err", err)
}

// findLeader asks the brokers, one after the other, who leads a partition:
// first the one that could tell last, as another may not answer at all.
func (f *fencing) findLeader(ctx context.Context, topic string, partition int32) (node, epoch int32, err error) {
	err = errNoBroker
	nodes := f.brokers.nodeIDs()
	first := max(slices.Index(nodes, f.toldLeader.Load()), 0)
	for i := range nodes {
		at := nodes[(first+i)%len(nodes)]
		var info prober.TopicInfo
		if info, err = f.pool.ReadTopic(ctx, at, topic); err != nil {
			continue
		}
		if p, ok := info.Find(partition); ok && p.Leader >= 0 {
			f.toldLeader.Store(at)
			return p.Leader, p.LeaderEpoch, nil
		}
		err = &prober.BrokerError{Code: kerr.LeaderNotAvailable.Code, Op: "Metadata"}
	}
	return 0, 0, err
}
