package fence

import (
	"math/rand/v2"
	"slices"
	"time"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// modelShape is what becomes of a partition's log besides appends.
type modelShape struct {
	// first is the offset at which the log began.
	first ps.Offset
	// marksByLogStart: a duplicate is told by log_start_offset, not by
	// log_append_time.
	marksByLogStart bool
}

// offset is the one of a place in the logs.
func (c *modelCluster) offset(i int) ps.Offset { return c.first + ps.Offset(i) }

// end is the committed end.
func (c *modelCluster) end() ps.Offset { return c.offset(len(c.committed)) }

// at is the record committed at an offset, whatever has become of it; nil: none.
func (c *modelCluster) at(o ps.Offset) *modelRecord {
	if i := o - c.first; i >= 0 && i < ps.Offset(len(c.committed)) {
		return &c.committed[i]
	}
	return nil
}

// varyLog draws what the log and its brokers are like.
func (w *modelWorld) varyLog(rng *rand.Rand) {
	c, has := &w.cluster, &w.varied.has
	if has[deletesAll] && has[replaces] {
		// All that the fence's state is known by must not be lost within a view's
		// life: that is one of its conditions.
		has[[]variety{deletesAll, replaces}[rng.IntN(2)]] = false
	}
	if has[offsetsWrap] {
		w.moveOffsets(1<<31 - ps.Offset(1+rng.IntN(12)))
	}
	if has[markers] {
		w.addMarkers(1 + rng.IntN(3))
	}
	c.marksByLogStart = has[logStartMarks] && !c.unmarked && !c.appendTime
	has[logStartMarks] = c.marksByLogStart
	has[typeChanges] = has[typeChanges] && !c.marksByLogStart
	for i := range c.replicas {
		c.replicas[i].revives = has[revives]
	}
}

// moveOffsets has the log begin at an offset. The fence's state, if any, keeps
// its distance.
func (w *modelWorld) moveOffsets(to ps.Offset) {
	c := &w.cluster
	c.first = to
	shift := func(log []modelRecord) {
		for i := range log {
			if r := &log[i]; r.fence && r.epoch == 0 {
				r.sequence = r.sequence.Plus(int(to))
			}
		}
	}
	shift(c.committed)
	for i := range c.replicas {
		shift(c.replicas[i].log)
		c.replicas[i].forget()
		c.replicas[i].replay(0)
	}
	for _, cl := range w.clients {
		cl.next = to
	}
}

// addMarkers ends the history with transactions' markers.
func (w *modelWorld) addMarkers(n int) {
	for range n {
		marker := modelRecord{control: true}
		w.cluster.committed = append(w.cluster.committed, marker)
		for i := range w.cluster.replicas {
			r := &w.cluster.replicas[i]
			r.log = append(r.log, marker)
			r.hw = len(r.log)
		}
		w.varied.happened[markers]++
	}
}

func (r *modelReplica) expired(now ps.Now, expiry time.Duration) bool {
	return now.Wall.Sub(r.batches[len(r.batches)-1].timestamp) > expiry
}

func (r *modelReplica) forget() { r.hasState, r.batches = false, r.batches[:0] }

// batchEnd is where the batch ends that begins at i.
func batchEnd(log []modelRecord, i int) int {
	end := i + 1
	for end < len(log) && log[end].place > 0 {
		end++
	}
	return end
}

// varyLogStep lets something happen to the log.
func (w *modelWorld) varyLogStep() {
	c := &w.cluster
	now, expiry := w.clock(), w.cfg.ProducerExpiry
	l := &c.replicas[c.leader]
	leads := l.leads && l.epoch == c.epoch
	r := w.rng.IntN(7)
	switch {
	case w.calm && w.has(typeChanges):
		c.appendTime = false // with it, writers without append-ids get no place
	case w.calm:
	case r == 0 && leads && (w.has(deletes) || w.has(deletesAll)):
		w.deleteRecords(l)
	case r < 3 && (w.has(compacts) || w.has(compactsWhole)):
		w.compact(&c.replicas[w.rng.IntN(3)])
	case r == 3 && w.has(replaces):
		if i := w.rng.IntN(3); i != c.leader && !c.inSync[i] {
			w.happens(replaces)
			w.trace("replica %d begins anew", i)
			f := &c.replicas[i]
			f.forget()
			f.log, f.hw, f.start, f.from = append([]modelRecord(nil), l.log[:l.start]...), l.start, l.start, l.start
			f.expire(now, expiry)
		}
	case r == 4 && w.has(typeChanges) && w.rng.IntN(4) == 0:
		w.happens(typeChanges)
		c.appendTime = !c.appendTime
		w.trace("append time %v", c.appendTime)
	case r == 5 && leads && w.has(bumps) && w.rng.IntN(8) == 0:
		w.bump(l, now)
	}
}

// typeMatters reports whether a success may be that of another copy, as only the
// log tells of it.
func (w *modelWorld) typeMatters() bool { return w.cluster.appendTime || w.has(typeChanges) }

// wasGone reports whether a verdict says of a record only that it is not in the log
// any more, and rightly.
func (w *modelWorld) wasGone(v Verdict, o ps.Offset) bool {
	if v.LogStart == ps.NoOffset || w.varied == nil {
		return false
	}
	i := int(o - w.cluster.first)
	return slices.ContainsFunc(w.cluster.replicas[:], func(r modelReplica) bool { return i < r.start || i < len(r.log) && r.log[i].gone })
}

// deleteRecords moves the log's start, below the high watermark.
func (w *modelWorld) deleteRecords(l *modelReplica) {
	to := l.start + 1 + w.rng.IntN(3)
	if w.rng.IntN(3) == 0 {
		to = l.hw
	}
	to = min(to, l.hw)
	last := -1 // the last committed batch of the fence
	for i := l.start; i < l.hw; i = batchEnd(l.log, i) {
		if l.log[i].fence {
			last = i
		}
	}
	switch {
	case to <= l.start:
		return
	case last >= 0 && to > last && w.has(deletesAll):
		w.happens(deletesAll)
	case w.has(deletes) && (last >= 0 || !w.has(replaces)):
		if last >= 0 {
			to = min(to, last)
		}
		if to <= l.start {
			return
		}
		w.happens(deletes)
	default:
		return
	}
	w.trace("log begins at %d", w.cluster.offset(to))
	l.start = to
	for i := range w.cluster.replicas {
		if r := &w.cluster.replicas[i]; r != l && r.hw >= to {
			r.start = max(r.start, to) // with their next fetch
		}
	}
}

// compact lets a replica lose records that newer ones may have replaced. All
// batches but a producer's last vanish when they are empty.
func (w *modelWorld) compact(r *modelReplica) {
	if r.hw-1 <= r.start {
		return
	}
	active := r.hw - 1 - w.rng.IntN(2) // the newest is never compacted
	for i := r.start; i < active; {
		end := batchEnd(r.log, i)
		if end > active {
			break
		}
		left := 0
		for j := i; j < end; j++ {
			if m := &r.log[j]; !m.gone && !m.control && w.rng.IntN(4) == 0 && (w.has(compacts) || w.has(compactsWhole)) {
				m.gone = true
				w.happens(compacts)
			}
			if !r.log[j].gone {
				left++
			}
		}
		if left == 0 && !r.log[i].bare && w.has(compactsWhole) && r.log[i].fence && !r.lastOfFence(i) {
			r.log[i].bare = true
			w.happens(compactsWhole)
		}
		i = end
	}
}

// lastOfFence reports whether the fence's last batch in the log begins at i.
func (r *modelReplica) lastOfFence(i int) bool {
	for j := batchEnd(r.log, i); j < len(r.log); j = batchEnd(r.log, j) {
		if r.log[j].fence {
			return false
		}
	}
	return true
}

// bump appends a record with the fence's producer id and a raised epoch, as only
// somebody could who knows the id. Nothing is promised while it happens, but a
// view adopts what it finds.
func (w *modelWorld) bump(l *modelReplica, now ps.Now) {
	if !l.hasState || l.stateEpoch > 5 || len(l.log) != l.hw {
		return
	}
	w.happens(bumps)
	w.digests++
	epoch := l.stateEpoch + 1
	w.trace("epoch raised to %d at %d", epoch, w.cluster.offset(len(l.log)))
	l.log = append(l.log, modelRecord{
		Record: ps.Record{Digest: w.digests}, fence: true, epoch: epoch, timestamp: now.Wall, leaderEpoch: l.epoch, appendTime: w.cluster.appendTime,
	})
	l.note(epoch, modelBatch{0, 0, len(l.log) - 1, now.Wall})
}

// tailView is the view that the last committed batch gives, if it is the fence's.
func (c *modelCluster) tailView(node int, at ps.Instant) (ps.View, bool) {
	r := &c.replicas[node]
	if !r.leads || r.hw < r.epochStart {
		return ps.View{}, false
	}
	last := -1
	for i := r.start; i < r.hw; i = batchEnd(r.log, i) {
		if batchEnd(r.log, i) <= r.hw && !r.log[i].bare {
			last = i
		}
	}
	if last < 0 || !r.log[last].fence {
		return ps.View{}, false
	}
	b, end := &r.log[last], batchEnd(r.log, last)
	return ps.View{
		ArmAtZero: c.armsAtZero, FromTail: true,
		Leader: ps.NodeID(node), LeaderEpoch: ps.LeaderEpoch(r.epoch), Next: c.offset(end), HighWatermark: c.offset(r.hw),
		HasState: true, Epoch: b.epoch, Sequence: b.sequence.Plus(end - last), StateTimestamp: b.timestamp, At: at,
	}, true
}
