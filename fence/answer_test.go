package fence

import (
	"slices"
	"testing"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
)

// TestJudgeEveryCode goes through all codes that Kafka has, and some that it
// may get, without and with a base offset.
func TestJudgeEveryCode(t *testing.T) {
	notAppended := []int16{2, 3, 6, 10, 17, 18, 19, 21, 29, 31, 32, 42, 43, 48, 49, 51, 53, 76, 87, 90, 100, 120}
	bySequence := []int16{45, 47}
	for code := int16(-2); code < 200; code++ {
		want := noIdea // 0 among them: no success is without an offset
		switch {
		case slices.Contains(bySequence, code):
			want = notNow
		case slices.Contains(notAppended, code):
			want = refusedByBroker
		}
		if got := judge(&Config{}, MarkLogAppendTime, Answer{Code: code, BaseOffset: ps.NoOffset, LogAppendTime: -1}); got != want {
			t.Errorf("code %d without a base offset: got %v, want %v", code, got, want)
		}
		if code == 0 {
			continue
		}
		for _, base := range []ps.Offset{0, 7} {
			if got := judge(&Config{}, MarkLogAppendTime, Answer{Code: code, BaseOffset: base, LogAppendTime: -1}); got != noIdea {
				t.Errorf("code %d at %d: got %v, want %v", code, base, got, noIdea)
			}
		}
		kfake := Answer{Code: code, BaseOffset: 0, LogAppendTime: -1, LogStart: -1}
		if got := judge(&Config{}, MarkLogStartOffset, kfake); got != want {
			t.Errorf("code %d of kfake: got %v, want %v", code, got, want)
		}
	}
}

func TestJudgeSuccess(t *testing.T) {
	for _, c := range []struct {
		name    string
		config  Config
		marking Marking
		answer  Answer
		want    meaning
	}{
		{"fresh", Config{}, MarkLogAppendTime, Answer{BaseOffset: 5, LogAppendTime: -1}, appended},
		{"fresh, log start not carried", Config{}, MarkLogAppendTime, Answer{BaseOffset: 5, LogAppendTime: -1, LogStart: -1}, appended},
		{"duplicate or LogAppendTime", Config{}, MarkLogAppendTime, Answer{BaseOffset: 5, LogAppendTime: 0}, ambiguous},
		{"kfake, fresh", Config{}, MarkLogStartOffset, Answer{BaseOffset: 5, LogAppendTime: -1}, appended},
		{"kfake, LogAppendTime", Config{}, MarkLogStartOffset, Answer{BaseOffset: 5, LogAppendTime: 9}, appended},
		{"kfake, duplicate", Config{}, MarkLogStartOffset, Answer{BaseOffset: 5, LogAppendTime: -1, LogStart: -1}, notNow},
		{"unmarked", Config{}, MarkNone, Answer{BaseOffset: 5, LogAppendTime: -1}, ambiguous},
		{"unsafe", Config{Unsafe: true}, MarkLogAppendTime, Answer{BaseOffset: 5, LogAppendTime: 9}, appended},
	} {
		if got := judge(&c.config, c.marking, c.answer); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestServable(t *testing.T) {
	c := modelConfig(0)
	if !c.Servable() {
		t.Error("got not servable: half the expiry is more than a use of a view")
	}
	if c.ProducerExpiry = 2 * c.stateUse(); c.Servable() {
		t.Error("got servable: half the expiry is no more than a use of a view")
	}
}
