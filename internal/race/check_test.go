package race

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

func TestCheck(t *testing.T) {
	won := func(value string, at appender.Offset) Attempt {
		return Attempt{Value: value, Expected: at, Answered: at, Outcome: Won}
	}
	told := func(o Outcome, value string, at appender.Offset) Attempt {
		return Attempt{Value: value, Expected: at, Answered: appender.NoOffset, Outcome: o, Err: errors.New("told so")}
	}
	for _, c := range []struct {
		name     string
		attempts []Attempt
		log      []Stored
		want     []Fault
	}{
		{"nothing happened", nil, nil, nil},
		{"winner and loser", []Attempt{won("a", 0), told(Refused, "b", 0)}, []Stored{{0, "a"}}, nil},
		{"unknown and there", []Attempt{told(Unknown, "a", 0)}, []Stored{{0, "a"}}, nil},
		{"unknown and not there", []Attempt{told(Unknown, "a", 0), won("b", 0)}, []Stored{{0, "b"}}, nil},
		{"two winners of one place", []Attempt{won("a", 0), won("b", 0)}, []Stored{{0, "a"}, {1, "b"}}, []Fault{Misplaced}},
		{"answered at another offset", []Attempt{{Value: "a", Expected: 0, Answered: 1, Outcome: Won}}, []Stored{{0, "a"}}, []Fault{Misplaced}},
		{"acknowledged and lost", []Attempt{won("a", 0)}, nil, []Fault{Missing}},
		{"refused and there", []Attempt{told(Refused, "a", 0)}, []Stored{{0, "a"}}, []Fault{RefusedInLog}},
		{"not sent and there", []Attempt{told(NotSent, "a", 0)}, []Stored{{0, "a"}}, []Fault{RefusedInLog}},
		{"a success repeated", []Attempt{won("a", 0)}, []Stored{{0, "a"}, {1, "a"}}, []Fault{Twice}},
		{"unknown and elsewhere", []Attempt{told(Unknown, "a", 0)}, []Stored{{7, "a"}}, []Fault{UnknownMisplaced}},
		{"written by nobody", []Attempt{won("a", 0)}, []Stored{{0, "a"}, {1, "x"}}, []Fault{Stray}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Check(c.attempts, c.log)
			var got []Fault
			for _, v := range r.Violations {
				got = append(got, v.Fault)
				if r.Count(v.Fault) == 0 {
					t.Errorf("%s is not counted", v.Fault)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if got, want := r.Won+r.Refused+r.Unknown+r.NotSent, len(c.attempts); got != want {
				t.Errorf("%d attempts counted, want %d", got, want)
			}
		})
	}
}
