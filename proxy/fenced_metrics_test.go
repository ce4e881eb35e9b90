package proxy

import (
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// meter reads what a proxy measures.
type meter struct {
	t      *testing.T
	reader *sdkmetric.ManualReader
}

func newMeter(t *testing.T) (*meter, Config) {
	m := &meter{t, sdkmetric.NewManualReader()}
	return m, Config{Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader)).Meter("test")}
}

// read gives the series of a metric by the values of their labels, in the order of the
// labels' names.
func (m *meter) read(name string) map[string]int64 {
	m.t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(m.t.Context(), &all); err != nil {
		m.t.Fatal(err)
	}
	series := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			sum, ok := metric.Data.(metricdata.Sum[int64])
			if !ok || metric.Name != name {
				continue
			}
			for _, point := range sum.DataPoints {
				key := ""
				for _, label := range point.Attributes.ToSlice() {
					key += "/" + label.Value.AsString()
				}
				series[key] = point.Value
			}
		}
	}
	return series
}

func (m *meter) want(name, series string, want int64) {
	m.t.Helper()
	if got := m.read(name)[series]; got != want {
		m.t.Errorf("%s%s: got %d, want %d", name, series, got, want)
	}
}

// timings counts how many lengths of time were measured, by metric and series.
func timings(p *Proxy) map[string]uint64 {
	counted := map[string]uint64{}
	for _, t := range p.Timings() {
		for _, s := range t.Series {
			key := t.Name
			for _, label := range s.Attributes.ToSlice() {
				key += "/" + label.Value.AsString()
			}
			for _, n := range s.Counts {
				counted[key] += n
			}
		}
	}
	return counted
}

// What is refused without being sent is told from what the broker refused: of two
// proxies the second one does not know of the first one's append.
func TestWhoDecidedAgainstABatchIsCounted(t *testing.T) {
	l := newLeader(t, "fenced")
	first := newFencedRig(t, Config{}, l).dial()
	m, cfg := newMeter(t)
	r := newFencedRig(t, cfg, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	wantResult(t, c.one(0, conditional(0, "b")), 1, -1, "expected-offset taken: expected=0 next=1")
	m.want("offsetproxy.appends.conflicts", "/cache", 1)
	m.want("offsetproxy.appends.conflicts", "/fence", 0)
	wantResult(t, first.one(0, conditional(1, "c")), 0, 1, "")
	wantResult(t, c.one(0, conditional(1, "d")), 1, -1, "expected-offset taken: expected=1 next=2")
	m.want("offsetproxy.appends.conflicts", "/cache", 1)
	m.want("offsetproxy.appends.conflicts", "/fence", 1)
	m.want("offsetproxy.appends", "/won", 1)
	m.want("offsetproxy.appends", "/taken", 2)

	r.awaitQuiet()
	got := timings(r.Proxy)
	for series, want := range map[string]uint64{
		"offsetproxy.appends.duration/won": 1, "offsetproxy.appends.duration/taken": 2, "offsetproxy.appends.duration/unknown": 0,
		"offsetproxy.appends.admission": 3, "offsetproxy.appends.hold/sent": 2, "offsetproxy.appends.hold/decided": 1,
	} {
		if got[series] != want {
			t.Errorf("%s: got %d, want %d", series, got[series], want)
		}
	}
	if got["offsetproxy.views.duration/ok"] == 0 {
		t.Error("no reading of a view was timed")
	}
}

// What goes on now is seen while it does, and is over afterwards.
func TestWhatGoesOnIsMeasured(t *testing.T) {
	l := newLeader(t, "fenced")
	m, cfg := newMeter(t)
	r := newFencedRig(t, cfg, l)
	release := l.holdViews()
	c := r.dial()
	id := c.send(produceOf(9, -1, part{topic: "fenced", records: conditional(0, "held")}))
	r.awaitUndecided(1)
	for _, name := range []string{"offsetproxy.appends.in_flight", "offsetproxy.requests.pending", "offsetproxy.upstream.open", "offsetproxy.ready", "offsetproxy.upstream.reachable"} {
		m.want(name, "", 1)
	}
	m.want("offsetproxy.draining", "", 0)
	release()
	wantResult(t, resultsOf(c.expect(id, 9))[0], 0, 0, "")
	r.awaitQuiet()
	m.want("offsetproxy.appends.in_flight", "", 0)
	c.Close()
	r.await("the connection ends", func() bool { return m.read("offsetproxy.upstream.open")[""] == 0 })
	r.stop()
	r.awaitEnd()
	m.want("offsetproxy.draining", "", 1)
	m.want("offsetproxy.ready", "", 0)
}

// Topics beyond the limit are counted together, and that this happens is told.
func TestMetricsByTopicAreBounded(t *testing.T) {
	l := newLeader(t, "fenced-a", "fenced-b", "fenced-c")
	m, cfg := newMeter(t)
	cfg.MetricTopics = 1
	r := newFencedRig(t, cfg, l)
	c := r.dial()
	for i, topic := range []string{"fenced-a", "fenced-b", "fenced-c", "fenced-a", "nowhere"} {
		c.produce(9, -1, part{topic: topic, records: conditional(int64(i), "v")})
	}
	r.awaitQuiet()
	got := m.read("offsetproxy.topic.appends")
	want := map[string]int64{"/won/fenced-a": 1, "/not_reached/(other)": 2, "/not_reached/fenced-a": 1}
	for series, n := range want {
		if got[series] != n {
			t.Errorf("%s: got %d, want %d", series, got[series], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got the series %v, want %v", got, want)
	}
	m.want("offsetproxy.limits.hit", "/metrics.max_topics", 2)
}

// Names that clients make up take no series, and do not pass for topics of which there
// are too many.
func TestMadeUpTopicsAreNotTooMany(t *testing.T) {
	l := newLeader(t, "fenced-a")
	m, cfg := newMeter(t)
	cfg.MetricTopics = 1
	r := newFencedRig(t, cfg, l)
	c := r.dial()
	for _, topic := range []string{"fenced-nowhere", "fenced-nor-there", "fenced-a"} {
		c.produce(9, -1, part{topic: topic, records: conditional(0, "v")})
	}
	r.awaitQuiet()
	got := m.read("offsetproxy.topic.appends")
	if len(got) != 2 || got["/refused/(other)"] != 2 || got["/won/fenced-a"] != 1 {
		t.Errorf("got the series %v, want two refused of others and one won", got)
	}
	m.want("offsetproxy.limits.hit", "/metrics.max_topics", 0)
}

// Nothing is counted by topic unless it is asked for.
func TestNoMetricsByTopicByDefault(t *testing.T) {
	l := newLeader(t, "fenced")
	m, cfg := newMeter(t)
	r := newFencedRig(t, cfg, l)
	wantResult(t, r.dial().one(0, conditional(0, "a")), 0, 0, "")
	r.awaitQuiet()
	if got := m.read("offsetproxy.topic.appends"); len(got) != 0 {
		t.Errorf("got %v, want nothing", got)
	}
}

// Each refusal is one line, for who looks closely, and says nothing of the record.
func TestRefusalsAreLogged(t *testing.T) {
	l := newLeader(t, "fenced")
	r := newFencedRig(t, Config{}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "secret-a")), 0, 0, "")
	c.one(0, conditional(0, "secret-b"))
	c.one(0, conditional(7, "secret-c"))
	c.one(0, plain("secret-d"))
	r.awaitQuiet()
	for line, want := range map[string]int{
		`level=DEBUG msg="batch not appended" topic=fenced partition=0 expected=0 verdict="taken next 1"`:        1,
		`level=DEBUG msg="batch not appended" topic=fenced partition=0 expected=7 verdict="not reached next 1"`:  1,
		`level=DEBUG msg="batch refused" remote=`:                                                                1,
		`topic=fenced partition=0 code=87 reason="the topic requires an expected-offset header on every record"`: 1,
		"level=ERROR": 0, "secret": 0,
	} {
		if got := r.log.count(line); got != want {
			t.Errorf("got %d lines with %s, want %d", got, line, want)
		}
	}
}
