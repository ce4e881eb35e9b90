package partitionstate

import "slices"

// recentMax bounds by default the records remembered while a partition is in use (16
// bytes each), recentIdle while nothing is in flight for it.
const (
	recentMax  = 4096
	recentIdle = 16
)

// recent remembers the records at one run of adjacent committed offsets,
// base … base+len(records)−1. Committed records never change, so an entry is
// true as long as it is kept (compaction only removes).
type recent struct {
	base    Offset
	records []Record
	// most bounds them while the partition is in use; 0: recentMax.
	most int
	// index is where each record with an append-id lies, by its digest: the first of
	// several, and then repeats is set. It is made by the first find, since few
	// partitions have use for it, and nil before and after records are dropped.
	index   map[uint64]Offset
	repeats bool
}

func (r *recent) bound() int {
	if r.most == 0 {
		return recentMax
	}
	return r.most
}

func (r *recent) end() Offset { return r.base + Offset(len(r.records)) }

// add takes in records at offsets from at on. Runs that do not touch what is
// known replace it when they lie behind it and are dropped when they lie
// before it.
func (r *recent) add(at Offset, records []Record) {
	switch {
	case len(records) == 0:
		return
	case len(r.records) == 0 || at > r.end():
		r.base, r.index = at, nil
		r.records = append(r.records[:0], records...)
	case at+Offset(len(records)) <= r.end():
		return // known already, or older than what is kept
	case at < r.base:
		r.base, r.index = at, nil
		r.records = append(r.records[:0], records...)
	default:
		from := r.end()
		r.records = append(r.records, records[from-at:]...)
		if r.index != nil {
			r.enter(from)
		}
	}
	if most := r.bound(); len(r.records) > 2*most {
		// In place: it fills up again.
		drop := len(r.records) - most
		r.records = r.records[:copy(r.records, r.records[drop:])]
		r.base += Offset(drop)
		r.index = nil
	}
}

func (r *recent) get(from, upTo Offset) ([]Record, bool) {
	if from < r.base || upTo > r.end() || from > upTo {
		return nil, false
	}
	return r.records[from-r.base : upTo-r.base], true
}

// trim keeps the newest n, and no memory for more.
func (r *recent) trim(n int) {
	r.index = nil
	drop := max(len(r.records)-n, 0)
	if drop == 0 && cap(r.records) <= n {
		return
	}
	kept := make([]Record, len(r.records)-drop)
	copy(kept, r.records[drop:])
	r.records = kept
	r.base += Offset(drop)
}

// enter takes the records from an offset on into the index.
func (r *recent) enter(from Offset) {
	for o := from; o < r.end(); o++ {
		record := r.records[o-r.base]
		if !record.AppendID {
			continue
		}
		if _, known := r.index[record.Digest]; known {
			r.repeats = true
		} else {
			r.index[record.Digest] = o
		}
	}
}

// find is the offset at which the remembered records begin with these.
func (r *recent) find(records []Record) (Offset, bool) {
	from := r.base
	if records[0].AppendID {
		if r.index == nil {
			r.index, r.repeats = map[uint64]Offset{}, false
			r.enter(r.base)
		}
		first, known := r.index[records[0].Digest]
		if !known {
			return NoOffset, false
		}
		if !r.repeats {
			if known, ok := r.get(first, first+Offset(len(records))); ok && slices.Equal(known, records) {
				return first, true
			}
			return NoOffset, false
		}
		from = first
	}
	for i := int(from - r.base); i+len(records) <= len(r.records); i++ {
		if r.records[i] == records[0] && slices.Equal(r.records[i:i+len(records)], records) {
			return r.base + Offset(i), true
		}
	}
	return NoOffset, false
}
