package agreement

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"
)

// some are terms of a proxy.
func some() Terms {
	return Terms{
		FenceID: "0x4f66667365740001", Rules: json.RawMessage(`{"Rules":[{"topics":"a","mode":"require"}],"Default":"off"}`),
		ViewMaxAge: time.Minute, AnswerMax: 2 * time.Minute, ClockSkew: 10 * time.Second,
		Asserted: map[string]string{"producer_id_expiration": "24h"}, BrokerKind: "auto",
	}
}

// TestHashesStayTheSame from version to version of the program, or proxies of both
// seem to disagree while they are replaced one by one.
func TestHashesStayTheSame(t *testing.T) {
	want := map[Name]Hash{
		ProtocolPart: "6b86b273ff34", FencePart: "990c23868b96", FenceIDPart: "0301a06ddf49", RulesPart: "9fdbc7b60300",
		ViewMaxAgePart: "fe02df2cae03", AnswerMaxPart: "6a17650e9398", ClockSkewPart: "01f0a2afd4a2",
		LimitsPart: "8216ab243ea6", KindPart: "634635a2166e",
	}
	got := Of(some())
	for _, p := range got.Parts {
		if p.Hash != want[p.Name] {
			t.Errorf("%s (%s): got %s, want %s", p.Name, p.Value, p.Hash, want[p.Name])
		}
	}
	if want := Hash("311610ee826d"); got.Hash != want {
		t.Errorf("all: got %s, want %s", got.Hash, want)
	}
}

// TestEachTermIsInAPartOfItsOwn changes one after the other.
func TestEachTermIsInAPartOfItsOwn(t *testing.T) {
	var changed []Name
	for _, tc := range []struct {
		name   string
		change func(*Terms)
		want   Name
	}{
		{"fence off", func(t *Terms) { t.Unsafe = true }, FencePart},
		{"fence id", func(t *Terms) { t.FenceID = "0x1" }, FenceIDPart},
		{"rules", func(t *Terms) { t.Rules = json.RawMessage(`{}`) }, RulesPart},
		{"view_max_age", func(t *Terms) { t.ViewMaxAge++ }, ViewMaxAgePart},
		{"answer_max", func(t *Terms) { t.AnswerMax++ }, AnswerMaxPart},
		{"clock_skew", func(t *Terms) { t.ClockSkew++ }, ClockSkewPart},
		{"asserted", func(t *Terms) { t.Asserted = nil }, LimitsPart},
		{"kind", func(t *Terms) { t.BrokerKind = "kafka" }, KindPart},
	} {
		other := some()
		tc.change(&other)
		got := Compare([]Shown{{"a", Of(some())}, {"b", Of(other)}})
		if len(got) != 1 || got[0].Part != tc.want || Of(other).Hash == Of(some()).Hash {
			t.Errorf("%s: got %+v, want a difference in %s", tc.name, got, tc.want)
		}
		changed = append(changed, tc.want)
	}
	for _, name := range Names() {
		if name != ProtocolPart && !slices.Contains(changed, name) {
			t.Errorf("no term changes %s", name)
		}
	}
	if terms, tried := reflect.TypeFor[Terms]().NumField(), len(changed); terms != tried {
		t.Errorf("%d terms, %d of them tried", terms, tried)
	}
}

func TestCompareNamesWhoHasWhat(t *testing.T) {
	other := some()
	other.ViewMaxAge = time.Hour
	newer := Of(some())
	newer.Parts = append(slices.Clone(newer.Parts), Part{"weather", HashOf([]byte(`"fine"`)), json.RawMessage(`"fine"`)})
	newer.Hash = hashOf(newer.Parts)
	got := Compare([]Shown{{"odd", Of(other)}, {"one", Of(some())}, {"two", Of(some())}, {"new", newer}})
	type side struct {
		value   string
		proxies []string
	}
	want := map[Name][]side{
		ViewMaxAgePart: {{`"1m0s"`, []string{"one", "two", "new"}}, {`"1h0m0s"`, []string{"odd"}}},
		"weather":      {{``, []string{"odd", "one", "two"}}, {`"fine"`, []string{"new"}}},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for _, d := range got {
		var sides []side
		for _, s := range d.Sides {
			sides = append(sides, side{string(s.Part.Value), s.Proxies})
		}
		if !reflect.DeepEqual(sides, want[d.Part]) {
			t.Errorf("%s: got %+v, want %+v", d.Part, sides, want[d.Part])
		}
	}
	if got := Compare([]Shown{{"one", Of(some())}, {"two", Of(some())}}); got != nil {
		t.Errorf("equal proxies: got %+v", got)
	}
}

func TestParse(t *testing.T) {
	want := Of(some())
	for _, write := range []func(any) ([]byte, error){json.Marshal, func(v any) ([]byte, error) { return json.MarshalIndent(v, "", "  ") }} {
		text, err := write(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	forged := Of(some())
	forged.Parts = slices.Clone(forged.Parts)
	forged.Parts[1].Value = json.RawMessage(`"off"`)
	lessParts := Of(some())
	lessParts.Parts = lessParts.Parts[1:]
	for name, a := range map[string]any{"a value that is not its hash's": forged, "parts that are not the hash's": lessParts, "no parts": Agreement{}, "another thing": []int{1}} {
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(text); !errors.Is(err, ErrForm) {
			t.Errorf("%s: got %v, want ErrForm", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	text, _ := json.Marshal(Of(some()))
	f.Add(text)
	f.Add([]byte(`{"parts":[{"value":null}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := Parse(text)
		if err != nil {
			return
		}
		if got := Compare([]Shown{{"a", a}, {"a again", a}}); got != nil {
			t.Errorf("differs from itself: %+v", got)
		}
	})
}
