package fence

import (
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// modelRecord is a record in a replica's log.
type modelRecord struct {
	ps.Record
	place       int                // in its batch
	tx          *modelTransmission // nil: written before the rule began
	fence       bool
	epoch       ps.ProducerEpoch
	sequence    ps.Sequence
	timestamp   ps.Timestamp
	leaderEpoch int
	appendTime  bool // its timestamp is the broker's
	control     bool // a transaction marker
	gone        bool // compacted away
	bare        bool // … and its batch with it
}

// modelTransmission is one copy of a batch on its way.
type modelTransmission struct {
	ticket   *modelTicket
	expected ps.Offset
	records  []ps.Record
	epoch    ps.ProducerEpoch
	sequence ps.Sequence
	maxTime  ps.Timestamp
	sentAt   ps.Instant
	plain    bool // not stamped
	// Of the broker that has it in work.
	base, end   int
	duplicateAt ps.Timestamp // log_append_time to answer; −1 fresh
	workedAt    ps.Instant
}

type modelBatch struct {
	first, last ps.Sequence
	base        int
	timestamp   ps.Timestamp
}

// modelReplica is one broker's copy of the partition.
type modelReplica struct {
	log        []modelRecord
	start      int // what is before it is deleted
	from       int // what is before it this replica never had
	hw         int
	epoch      int // newest leader epoch it knows
	leads      bool
	epochStart int
	position   [3]int // what the followers are known to have, −1 not yet in this epoch
	hasState   bool
	stateEpoch ps.ProducerEpoch
	batches    []modelBatch
	revives    bool // state that has expired comes back when it is read from the log
	revived    int
}

// modelCluster is three replicas of one partition and their controller.
type modelCluster struct {
	replicas   [3]modelReplica
	inSync     [3]bool
	leader     int
	epoch      int
	committed  []modelRecord // the truth
	appendTime bool          // a LogAppendTime topic
	unmarked   bool          // answers do not tell a duplicate from an append
	armsAtZero bool          // without state only sequence 0 is accepted
	readsAll   bool          // what is not committed is read, too
	modelShape
	onCommit func(offset int, r *modelRecord)
}

func (c *modelCluster) last(r *modelReplica) ps.Sequence { return r.batches[len(r.batches)-1].last }

// produce is what a broker does with a batch: an error code without a base
// offset, or tx.base and tx.end are set and the answer waits for them.
func (c *modelCluster) produce(node int, tx *modelTransmission, now ps.Now) int16 {
	r := &c.replicas[node]
	if !r.leads {
		return 6
	}
	n := len(tx.records)
	lastSequence := tx.sequence.Plus(n - 1)
	if r.hasState && !tx.plain {
		switch {
		case tx.epoch < r.stateEpoch:
			return 47
		case tx.epoch > r.stateEpoch && tx.sequence != 0:
			return 45
		case tx.epoch == r.stateEpoch:
			for _, b := range r.batches {
				if b.first == tx.sequence && b.last == lastSequence {
					tx.base, tx.end, tx.duplicateAt = b.base, b.base+n, b.timestamp
					if c.unmarked {
						tx.duplicateAt = -1
					}
					return 0
				}
			}
			if c.last(r).Plus(1) != tx.sequence {
				return 45
			}
		}
	}
	if !r.hasState && c.armsAtZero && tx.sequence != 0 && !tx.plain {
		return 45
	}
	tx.base, tx.end, tx.duplicateAt = len(r.log), len(r.log)+n, -1
	timestamp := tx.maxTime
	if c.appendTime {
		timestamp, tx.duplicateAt = now.Wall, now.Wall
	}
	for i, rec := range tx.records {
		r.log = append(r.log, modelRecord{
			Record: rec, place: i, tx: tx, fence: !tx.plain, epoch: tx.epoch, sequence: tx.sequence.Plus(i),
			timestamp: timestamp, leaderEpoch: r.epoch, appendTime: c.appendTime,
		})
	}
	if !tx.plain {
		r.note(tx.epoch, modelBatch{tx.sequence, lastSequence, tx.base, timestamp})
	}
	return 0
}

// append is what a plain producer does that goes around the proxies.
func (c *modelCluster) append(r ps.Record) {
	if l := &c.replicas[c.leader]; l.leads && l.epoch == c.epoch {
		l.log = append(l.log, modelRecord{Record: r, leaderEpoch: l.epoch})
	}
}

func (r *modelReplica) note(epoch ps.ProducerEpoch, b modelBatch) {
	if !r.hasState || r.stateEpoch != epoch {
		r.batches = r.batches[:0]
	}
	r.hasState, r.stateEpoch = true, epoch
	if len(r.batches) == 5 {
		copy(r.batches, r.batches[1:])
		r.batches = r.batches[:4]
	}
	r.batches = append(r.batches, b)
}

// replay notes the batches in log[from:].
func (r *modelReplica) replay(from int) {
	for i := from; i < len(r.log); {
		end := i + 1
		for end < len(r.log) && r.log[end].place > 0 {
			end++
		}
		if b := &r.log[i]; b.fence && !b.bare {
			r.note(b.epoch, modelBatch{b.sequence, b.sequence.Plus(end - i - 1), i, b.timestamp})
		}
		i = end
	}
}

func (r *modelReplica) truncate(to int, now ps.Now, expiry time.Duration) {
	if to == len(r.log) {
		return
	}
	r.log = r.log[:to]
	r.hw = min(r.hw, to)
	r.hasState, r.batches = false, r.batches[:0]
	r.replay(r.from)
	if !r.revives {
		r.expire(now, expiry)
	} else if r.hasState && r.expired(now, expiry) {
		r.revived++
	}
}

func (r *modelReplica) expire(now ps.Now, expiry time.Duration) {
	if r.hasState && r.expired(now, expiry) {
		r.hasState, r.batches = false, r.batches[:0]
	}
}

// learn tells a replica who leads.
func (c *modelCluster) learn(i int) {
	r := &c.replicas[i]
	if r.epoch == c.epoch {
		return
	}
	r.epoch = c.epoch
	r.leads = c.leader == i
	if r.leads {
		r.epochStart = len(r.log)
		r.position = [3]int{-1, -1, -1}
	}
}

// elect makes another in-sync replica (or the same again) the leader.
func (c *modelCluster) elect(i int) {
	if c.inSync[i] {
		c.leader = i
		c.epoch++
	}
}

// replicate lets a follower fetch up to n records.
func (c *modelCluster) replicate(i, n int, now ps.Now, expiry time.Duration) {
	l, f := &c.replicas[c.leader], &c.replicas[i]
	if i == c.leader || !l.leads || l.epoch != c.epoch || f.epoch != c.epoch {
		return
	}
	same := min(len(l.log), len(f.log))
	for same > 0 && l.log[same-1].leaderEpoch != f.log[same-1].leaderEpoch {
		same--
	}
	f.truncate(same, now, expiry)
	l.position[i] = len(f.log) // as a fetch request says
	c.advance(l)
	from := len(f.log)
	to := min(len(l.log), from+n)
	for to < len(l.log) && l.log[to].place > 0 {
		to++ // whole batches
	}
	f.log = append(f.log, l.log[from:to]...)
	f.replay(from)
	f.hw = max(f.hw, min(l.hw, len(f.log)))
	if !c.inSync[i] && len(f.log) >= max(l.hw, l.epochStart) {
		c.inSync[i] = true
	}
}

// advance moves the leader's high watermark.
func (c *modelCluster) advance(l *modelReplica) {
	hw := len(l.log)
	for i := range c.replicas {
		if i != c.leader && c.inSync[i] {
			hw = min(hw, l.position[i])
		}
	}
	if hw <= l.hw {
		return
	}
	l.hw = hw
	for o := len(c.committed); o < hw; o++ {
		c.committed = append(c.committed, l.log[o])
		c.onCommit(int(c.offset(o)), &c.committed[o])
	}
}

// shrink takes a follower out of the in-sync replicas, of which two remain.
func (c *modelCluster) shrink(i int) {
	l := &c.replicas[c.leader]
	if i == c.leader || !l.leads || l.epoch != c.epoch || c.inSync != [3]bool{true, true, true} {
		return
	}
	c.inSync[i] = false
	c.advance(l)
}

// crash kills a broker's process: its log stays, of its producer state only
// the newest batch, and it leads no longer.
func (c *modelCluster) crash(i, lag int) {
	r := &c.replicas[i]
	r.leads = false
	r.hw = max(0, r.hw-lag)
	if len(r.batches) > 1 {
		r.batches = append(r.batches[:0], r.batches[len(r.batches)-1])
	}
	if c.leader == i {
		for j := range c.replicas {
			if j != i && c.inSync[j] {
				c.elect(j)
				return
			}
		}
		c.elect(i)
	}
	r.epoch = -1
}

// view is the pair that a leader answers; the high watermark is read later.
func (c *modelCluster) view(node int, at ps.Instant) (ps.View, bool) {
	r := &c.replicas[node]
	if !r.leads {
		return ps.View{}, false
	}
	v := ps.View{
		ArmAtZero: c.armsAtZero,
		Leader:    ps.NodeID(node), LeaderEpoch: ps.LeaderEpoch(r.epoch), Next: c.offset(len(r.log)),
		StateTimestamp: -1, HighWatermark: ps.NoOffset, At: at,
	}
	if r.hasState {
		v.HasState, v.Epoch, v.Sequence = true, r.stateEpoch, c.last(r).Plus(1)
		v.StateTimestamp = r.batches[len(r.batches)-1].timestamp
	}
	return v, true
}

func (c *modelCluster) highWatermark(node int) ps.Offset {
	r := &c.replicas[node]
	if r.hw < r.epochStart {
		return ps.NoOffset // OFFSET_NOT_AVAILABLE
	}
	return c.offset(r.hw)
}

func (c *modelCluster) read(node int, from, upTo ps.Offset, at ps.Instant) (Stored, bool) {
	r := &c.replicas[node]
	if !r.leads || from < 0 {
		return Stored{}, false
	}
	hw := c.offset(r.hw)
	s := Stored{ReadTo: min(upTo, hw), HighWatermark: hw, LogStart: c.offset(r.start), At: at}
	if c.readsAll {
		s.ReadTo = min(upTo, c.offset(len(r.log)))
	}
	for o := max(from, s.LogStart); o < s.ReadTo; o++ {
		m := &r.log[o-c.offset(0)]
		if m.gone {
			continue
		}
		sent := m.timestamp
		if m.tx != nil {
			sent = m.tx.maxTime
		}
		s.Records = append(s.Records, StoredRecord{
			Offset: o, Record: m.Record, Timestamp: sent, ByFence: m.fence, Epoch: m.epoch, Sequence: m.sequence, AppendTime: m.appendTime, Control: m.control,
		})
	}
	s.ReadTo = max(s.ReadTo, from)
	return s, true
}
