package partitionstate

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naiveUnsettled remembers single records: which transmission, where, what.
type naiveUnsettled map[*Unsettled]map[Offset]Record

func (n naiveUnsettled) overlaps(u *Unsettled, at Offset, records []Record) bool {
	for i, r := range records {
		if mine, ok := n[u][at+Offset(i)]; ok && mine == r {
			return true
		}
	}
	return false
}

func (n naiveUnsettled) settle(at Offset, records []Record) {
	for u := range n {
		for i, r := range records {
			if mine, ok := n[u][at+Offset(i)]; ok && mine == r {
				delete(n[u], at+Offset(i))
			}
		}
		if len(n[u]) == 0 {
			delete(n, u)
		}
	}
}

func TestUnsettledAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		naive := naiveUnsettled{}
		var order []*Unsettled
		batch := func() (Offset, []Record) {
			at := Offset(rapid.IntRange(0, 8).Draw(t, "at"))
			var records []Record
			for range rapid.IntRange(1, 4).Draw(t, "n") {
				records = append(records, Record{Digest: rapid.Uint64Range(1, 3).Draw(t, "record"), AppendID: rapid.Bool().Draw(t, "append-id")})
			}
			return at, records
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			at, records := batch()
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				u := &Unsettled{Expected: at, Records: records, BaseSequence: Sequence(rapid.IntRange(0, 1).Draw(t, "sequence"))}
				want := u
				for _, o := range order {
					if len(naive[o]) == len(records) && o.Expected == at && o.BaseSequence == u.BaseSequence && slices.Equal(o.Records, records) {
						want = o
					}
				}
				if got := s.Unsettle(u); got != want {
					t.Fatalf("got another memory than of the same transmission")
				}
				if want != u {
					break
				}
				order = append(order, u)
				naive[u] = map[Offset]Record{}
				for i, r := range records {
					naive[u][at+Offset(i)] = r
				}
			case 1:
				s.Settle(at, records)
				naive.settle(at, records)
			case 2:
				if open := s.Unsettled(); len(open) > 0 {
					u := open[rapid.IntRange(0, len(open)-1).Draw(t, "which")]
					s.Forget(u)
					delete(naive, u)
				}
			}
			order = slices.DeleteFunc(order, func(u *Unsettled) bool { return naive[u] == nil })
			if got := s.Unsettled(); !slices.Equal(got, order) {
				t.Fatalf("got %d open, want %d, oldest first", len(got), len(order))
			}
			at, records = batch()
			var first *Unsettled
			for _, u := range order {
				want := naive.overlaps(u, at, records)
				if got := u.Overlaps(at, records); got != want {
					t.Fatalf("overlaps: got %v, want %v", got, want)
				}
				if want && first == nil {
					first = u
				}
			}
			if got := s.FindUnsettled(at, records); (got != nil) != (first != nil) || got != nil && !naive.overlaps(got, at, records) {
				t.Fatalf("found %v, want one such as %v", got, first)
			}
			found := s.AppendOverlapping(nil, at, records)
			for _, u := range order {
				if got, want := slices.Contains(found, u), naive.overlaps(u, at, records); got != want {
					t.Fatalf("overlapping: got %v, want %v", got, want)
				}
			}
			open := 0
			for _, u := range order {
				open += len(naive[u])
			}
			for _, n := range s.openAt {
				open -= int(n)
			}
			if open != 0 {
				t.Fatalf("the count of open records is wrong by %d", open)
			}
			for _, u := range order {
				want := false
				for o, r := range naive[u] {
					want = want || r == records[0] && o != at
				}
				if got := u.Misplaces(records[0], at); got != want {
					t.Fatalf("misplaces: got %v, want %v", got, want)
				}
			}
		}
	})
}

// What is remembered for long does not hold memory that its batch shares with others.
func TestUnsettledRecordsAreCopied(t *testing.T) {
	var s State
	records := run(3, 5)
	u := s.Unsettle(&Unsettled{Expected: 3, Records: records})
	records[0].Digest++
	if got := s.FindUnsettled(3, run(3, 4)); got != u {
		t.Errorf("got %v, want what was remembered", got)
	}
}
