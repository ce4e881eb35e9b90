package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestNumber(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", .0444: "0.04", 9.994: "9.99", 9.996: "10.0", 99.94: "99.9", 99.96: "100", 123456: "123456", -12.34: "-12.3",
	} {
		if got := number(value); got != want {
			t.Errorf("%v: got %s, want %s", value, got, want)
		}
	}
}

// fakeMeasure is a measure whose ways give what is written here.
func fakeMeasure(ways map[string][]sample, order ...string) (measure, *[]string) {
	var taken []string
	return measure{name: "m", about: "a thing", setUp: func(context.Context, *run) ([]way, error) {
		var out []way
		for _, name := range order {
			out = append(out, way{name: name, sample: func(_ context.Context, round int) (sample, error) {
				taken = append(taken, name)
				return ways[name][round], nil
			}})
		}
		return out, nil
	}}, &taken
}

func rate(v float64) sample { return sample{{"rate", "MB/s", higher, v}} }

func quiet() *run { return &run{log: func(string, ...any) {}} }

func TestTakeInterleavesAndPairs(t *testing.T) {
	cpu := figure{"CPU", "s/GB", lower, 2}
	m, taken := fakeMeasure(map[string][]sample{
		"direct": {rate(1), rate(100), rate(50), rate(200)},
		"off":    {append(rate(1), cpu), append(rate(90), cpu), append(rate(40), cpu), append(rate(100), cpu)},
	}, "direct", "off")
	got, err := take(t.Context(), quiet(), m, 3)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"direct", "off", "off", "direct", "direct", "off", "off", "direct"}; !reflect.DeepEqual(*taken, want) {
		t.Errorf("taken in the order %q, want %q", *taken, want)
	}
	want := []measuredWay{
		{"direct", []series{{"rate", "MB/s", higher, []float64{100, 50, 200}, spread{100, 50, 200}, nil}}},
		{"off", []series{
			{"rate", "MB/s", higher, []float64{90, 40, 100}, spread{90, 40, 100}, &spread{.8, .5, .9}},
			{"CPU", "s/GB", lower, []float64{2, 2, 2}, spread{2, 2, 2}, nil},
		}},
	}
	if !reflect.DeepEqual(got.Ways, want) {
		t.Errorf("got %+v\nwant %+v", got.Ways, want)
	}
	var table bytes.Buffer
	got.Others = nil // what else runs on this machine
	got.write(&table)
	wantTable := `
m: a thing
  way     rate MB/s       ratio              CPU s/GB
  direct  100 (50.0..200)
  off     90.0 (40.0..100)  0.80 (0.50..0.90)  2.00 (2.00..2.00)
`
	if fields := strings.Fields(table.String()); !reflect.DeepEqual(fields, strings.Fields(wantTable)) {
		t.Errorf("got\n%s\nwant\n%s", table.String(), wantTable)
	}
	assertAligned(t, table.String())
}

// assertAligned wants the columns of all lines to begin at the same place.
func assertAligned(t *testing.T, table string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")[1:]
	at := strings.Index(lines[0], "rate")
	for _, line := range lines {
		if at < 2 || line[at-1] != ' ' || line[at] == ' ' {
			t.Errorf("the second column does not begin at %d: %q", at, line)
		}
	}
}

func TestTakeFailsWhereASampleCouldNotBeTaken(t *testing.T) {
	broken := errors.New("broken")
	failing := measure{name: "m", setUp: func(context.Context, *run) ([]way, error) {
		return []way{{name: "w", sample: func(_ context.Context, round int) (sample, error) {
			if round == 2 {
				return nil, broken
			}
			return rate(1), nil
		}}}, nil
	}}
	if _, err := take(t.Context(), quiet(), failing, 2); !errors.Is(err, broken) {
		t.Errorf("a failing sample: got %v", err)
	}
	if _, err := take(t.Context(), quiet(), failing, 1); err != nil {
		t.Errorf("without the failing round: got %v", err)
	}
	empty, _ := fakeMeasure(map[string][]sample{"w": {nil, nil}}, "w")
	if _, err := take(t.Context(), quiet(), empty, 1); !errors.Is(err, errNothing) {
		t.Errorf("an empty sample: got %v", err)
	}
	notSetUp := measure{name: "m", setUp: func(context.Context, *run) ([]way, error) { return nil, broken }}
	if _, err := take(t.Context(), quiet(), notSetUp, 1); !errors.Is(err, broken) {
		t.Errorf("a failing set-up: got %v", err)
	}
}

func TestReportAsJSON(t *testing.T) {
	m, _ := fakeMeasure(map[string][]sample{"a": {rate(1), rate(4)}, "b": {rate(1), rate(2)}}, "a", "b")
	taken, err := take(t.Context(), quiet(), m, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := report{Rounds: 1, Seconds: 2, Targets: []string{"a", "b"}, Measures: []measured{taken}, Memory: []memory{{"b", 12.5}}}
	var text bytes.Buffer
	if err := want.writeJSON(&text); err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(text.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	var warning bytes.Buffer
	writeOthers(&warning, &spread{.05, 0, .09})
	writeOthers(&warning, nil)
	if warning.Len() > 0 {
		t.Errorf("a warning of quiet neighbours: %s", warning.String())
	}
	if writeOthers(&warning, &spread{.05, 0, .5}); !strings.Contains(warning.String(), "5% of the machine (0%..50%)") {
		t.Errorf("no warning of a busy one: %q", warning.String())
	}
	for _, key := range []string{`"ratio"`, `"median"`, `"peak_mib"`, `"better": "higher"`} {
		if !strings.Contains(text.String(), key) {
			t.Errorf("no %s in %s", key, text.String())
		}
	}
}
