package partitionstate

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// logged is the record that lies at an offset of the only log there is.
func logged(o Offset) Record { return Record{Digest: uint64(o)*7 + 1, AppendID: o%2 == 0} }

func run(from, upTo Offset) []Record {
	var records []Record
	for ; from < upTo; from++ {
		records = append(records, logged(from))
	}
	return records
}

// What is remembered is true, whatever comes in whichever order; the newest
// run that was given is always known, and memory stays bounded.
func TestRecentAgainstTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r recent
		told := map[Offset]bool{} // the naive memory: everything ever told
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				r.trim(rapid.IntRange(0, 20).Draw(t, "keep"))
			default:
				at := Offset(rapid.IntRange(0, 60).Draw(t, "at"))
				n := rapid.SampledFrom([]int{0, 1, 2, 5, 30, recentMax}).Draw(t, "n")
				end := r.end()
				had := len(r.records) > 0
				r.add(at, run(at, at+Offset(n)))
				for o := at; o < at+Offset(n); o++ {
					told[o] = true
				}
				// Unless it is older than what is kept, it is known now.
				if n > 0 && (!had || at+Offset(n) > end) {
					from := max(at, at+Offset(n)-recentMax)
					if got, ok := r.get(from, at+Offset(n)); !ok || !slices.Equal(got, run(from, at+Offset(n))) {
						t.Fatalf("added %d..%d and it is not known", at, at+Offset(n))
					}
				}
			}
			if len(r.records) > 2*recentMax {
				t.Fatalf("got %d records kept", len(r.records))
			}
			from := Offset(rapid.IntRange(0, 100).Draw(t, "from"))
			upTo := from + Offset(rapid.IntRange(-1, 10).Draw(t, "span"))
			got, ok := r.get(from, upTo)
			if !ok {
				continue
			}
			if !slices.Equal(got, run(from, upTo)) {
				t.Fatalf("%d..%d: got other records than the log has", from, upTo)
			}
			for o := from; o < upTo; o++ {
				if !told[o] {
					t.Fatalf("got a record at %d that nobody told", o)
				}
			}
		}
	})
}

func TestRecentKeepsTheNewest(t *testing.T) {
	var s State
	s.Learned(0, run(0, 3*recentMax))
	if _, ok := s.Known(0, 1); ok {
		t.Error("the oldest record is still known")
	}
	if _, ok := s.Known(2*recentMax, 3*recentMax); !ok {
		t.Error("the newest records are not known")
	}
	s.Idle(1)
	if _, ok := s.Known(3*recentMax-recentIdle, 3*recentMax); !ok {
		t.Error("idle: the newest records are not known")
	}
	if _, ok := s.Known(3*recentMax-recentIdle-1, 3*recentMax); ok {
		t.Error("idle: more is kept than an idle partition may cost")
	}
	if got := cap(s.recent.records); got > recentIdle {
		t.Errorf("idle: memory for %d records is held", got)
	}
}

// A run that does not touch what is known takes its place, in its memory: one
// record lay in room for thousands when the partition became idle.
func TestIdleLetsGoOfRoomAfterAGap(t *testing.T) {
	var s State
	s.Learned(0, run(0, 2*recentMax-1))
	s.Learned(3*recentMax, run(3*recentMax, 3*recentMax+1))
	s.Unsettle(&Unsettled{Expected: 1, Records: run(1, 2)})
	s.Settle(1, run(1, 2))
	s.Idle(1)
	if got := cap(s.recent.records); got > recentIdle {
		t.Errorf("memory for %d records is held, want at most %d", got, recentIdle)
	}
	if got, ok := s.Known(3*recentMax, 3*recentMax+1); !ok || len(got) != 1 || got[0] != logged(3*recentMax) {
		t.Errorf("got %v %v, want the newest record", got, ok)
	}
	if cap(s.unsettled) > 0 || cap(s.index) > 0 {
		t.Error("memory for unsettled transmissions is held")
	}
}

// findByScan is find, record by record.
func (r *recent) findByScan(records []Record) (Offset, bool) {
	for i := 0; i+len(records) <= len(r.records); i++ {
		if slices.Equal(r.records[i:i+len(records)], records) {
			return r.base + Offset(i), true
		}
	}
	return NoOffset, false
}

// Whatever is added and dropped, records are found where a scan finds them: few of
// them, so that they repeat themselves, with append-ids and without.
func TestRecentFindsWhatAScanFinds(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		r := recent{most: rapid.IntRange(0, 20).Draw(t, "most")}
		kinds := rapid.SampledFrom([]int{2, 6, 1000}).Draw(t, "kinds")
		some := func(most int) []Record {
			records := make([]Record, rapid.IntRange(1, most).Draw(t, "n"))
			for i := range records {
				n := rapid.IntRange(0, kinds).Draw(t, "record")
				records[i] = Record{Digest: uint64(n / 2), AppendID: n%2 == 0}
			}
			return records
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				r.trim(rapid.IntRange(0, 10).Draw(t, "keep"))
			case 1:
				r.add(Offset(rapid.IntRange(0, 50).Draw(t, "at")), some(20))
			default:
				r.add(r.end(), some(5))
			}
			for range 3 {
				records := some(3)
				if n := len(r.records); n > 0 && rapid.Bool().Draw(t, "known") {
					from := rapid.IntRange(0, n-1).Draw(t, "from")
					records = slices.Clone(r.records[from:min(from+3, n)])
				}
				got, ok := r.find(records)
				want, wanted := r.findByScan(records)
				if got != want || ok != wanted {
					t.Fatalf("got %v %v, want %v %v for %v in %v", got, ok, want, wanted, records, r.records)
				}
				if ok {
					found++
				}
			}
		}
	})
	if found == 0 {
		t.Error("nothing was ever found, so that this test proves nothing")
	}
}

// An idle partition keeps no index.
func TestIdleKeepsNoIndex(t *testing.T) {
	var s State
	s.Learned(0, run(0, 100))
	if _, ok := s.Recall(run(2, 4)); !ok || s.recent.index == nil {
		t.Fatal("a record with an append-id is not found, or without an index")
	}
	s.Idle(1)
	if s.recent.index != nil {
		t.Error("idle: an index is held")
	}
}
