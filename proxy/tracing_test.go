package proxy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/offsetproxy/offsetproxy/fence"
)

const (
	testTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	testParent = "00-" + testTrace + "-00f067aa0ba902b7-01"
)

// What is a traceparent, and what is not, is what OpenTelemetry's own code says.
func TestTraceparentIsReadAsElsewhere(t *testing.T) {
	unsampled := strings.TrimSuffix(testParent, "1") + "0"
	all := []string{
		"", "00", testParent, unsampled, testParent + "x", strings.ToUpper(testParent), testParent[:54],
		"01" + testParent[2:], "01" + testParent[2:] + "-more", "01" + testParent[2:] + "more", "ff" + testParent[2:],
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", "00-" + testTrace + "-0000000000000000-01",
		strings.Replace(testParent, "-", "_", 1), strings.Replace(testParent, "4b", "4g", 1), "0g" + testParent[2:],
	}
	for i := range testParent { // each place, spoilt
		all = append(all, testParent[:i]+"-"+testParent[i+1:], testParent[:i]+"A"+testParent[i+1:])
	}
	for _, text := range all {
		carrier := propagation.MapCarrier{headerParent: text}
		want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
		got := parseParent([]byte(text))
		if got.IsValid() != want.IsValid() || got.IsSampled() != want.IsSampled() || got.IsValid() && (got.TraceID() != want.TraceID() || got.SpanID() != want.SpanID()) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// spansOf has a proxy trace what sampled says, and gives the spans that have ended.
func spansOf(sampled func(trace.SpanContext) bool) (*tracetest.SpanRecorder, *Tracing) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sdktrace.AlwaysSample()))
	return recorder, &Tracing{Tracer: provider.Tracer("test"), Sampled: sampled}
}

func isSampled(parent trace.SpanContext) bool { return parent.IsSampled() }

func tracedBatch(expected, value, parent string) []byte {
	return batchOf(batchOptions{}, record{value: value, expected: expected, headers: []kmsg.Header{
		{Key: headerParent, Value: []byte(parent)}, {Key: headerState, Value: []byte("vendor=x")},
	}})
}

func TestConditionalBatchesAreTraced(t *testing.T) {
	l := newLeader(t, "fenced")
	spans, tracing := spansOf(isSampled)
	r := newFencedRig(t, Config{Tracing: tracing}, l)
	c := r.dial()
	for _, b := range [][]byte{
		tracedBatch("0", "secret-value", testParent), tracedBatch("0", "b", testParent), tracedBatch("end", "c", testParent),
		tracedBatch("-1", "d", testParent), tracedBatch("", "e", testParent),
		tracedBatch("2", "f", strings.TrimSuffix(testParent, "1")+"0"), conditional(3, "g"),
	} {
		c.one(0, b)
	}
	r.awaitQuiet()
	var got []string
	for _, span := range spans.Ended() {
		if id := span.Parent().TraceID().String(); id != testTrace || span.SpanContext().TraceID().String() != id {
			t.Errorf("span of trace %s with parent in %s, want %s", span.SpanContext().TraceID(), id, testTrace)
		}
		if state := span.SpanContext().TraceState().String(); state != "vendor=x" {
			t.Errorf("got trace state %q, want that of the record", state)
		}
		set := attribute.NewSet(span.Attributes()...)
		line := span.Name()
		for _, key := range []attribute.Key{"messaging.destination.name", "messaging.destination.partition.id", "offsetproxy.expected_offset",
			"offsetproxy.outcome", "messaging.kafka.offset", "offsetproxy.error_code"} {
			if v, ok := set.Value(key); ok {
				line += " " + v.String()
			}
		}
		for _, event := range span.Events() {
			line += " " + event.Name
		}
		got = append(got, line)
		if text := fmt.Sprint(span.Attributes()); strings.Contains(text, "secret") {
			t.Errorf("a span has the content of a record: %s", text)
		}
		if span.Status().Code != codes.Unset {
			t.Errorf("%s: got status %v, want none: it is as it should be", line, span.Status())
		}
		if span.EndTime().Before(span.StartTime()) {
			t.Errorf("%s: ends before it begins", line)
		}
	}
	want := []string{
		"conditional append fenced 0 0 won 0 sent",
		"conditional append fenced 0 0 taken 1",
		"conditional append fenced 0 end won 1 sent",
		"conditional append fenced 0 refused 87",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got the spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A tracestate that is longer than all who pass it on keep is left out, and so is one
// without a traceparent.
func TestTraceStateIsBounded(t *testing.T) {
	l := newLeader(t, "fenced")
	spans, tracing := spansOf(func(trace.SpanContext) bool { return true })
	r := newFencedRig(t, Config{Tracing: tracing}, l)
	c := r.dial()
	long := strings.Repeat("v", 200)
	fits, tooLong := "a="+long+",b="+long, "a="+long+",b="+long+",c="+long
	for i, b := range []struct{ parent, state, want string }{
		{testParent, fits, fits}, {testParent, tooLong, ""}, {testParent, "not one", ""}, {"", fits, ""},
	} {
		c.one(0, batchOf(batchOptions{}, record{value: "v", expected: fmt.Sprint(i), headers: []kmsg.Header{
			{Key: headerParent, Value: []byte(b.parent)}, {Key: headerState, Value: []byte(b.state)},
		}}))
		r.await("the span ends", func() bool { return len(spans.Ended()) == i+1 })
		if got := spans.Ended()[i].SpanContext().TraceState().String(); got != b.want {
			t.Errorf("of %d bytes, parent %q: got %q, want %q", len(b.state), b.parent, got, b.want)
		}
	}
}

// Without a traceparent a batch begins a trace, if it is sampled; what became unknown
// shows as an error, and so does a connection that ends first.
func TestTracesOfWhatGoesWrong(t *testing.T) {
	l := newLeader(t, "fenced")
	spans, tracing := spansOf(func(trace.SpanContext) bool { return true })
	r := newFencedRig(t, Config{Tracing: tracing, DrainTimeout: 10 * time.Millisecond}, l)
	c := r.dial()
	wantResult(t, c.one(0, conditional(0, "a")), 0, 0, "")
	c.one(0, conditional(0, "a")) // perhaps its own, which nothing shows
	r.awaitQuiet()
	release := l.holdViews()
	defer release()
	gone := r.dial()
	gone.send(produceOf(9, -1, part{topic: "fenced", records: conditional(2, "b")}))
	r.awaitUndecided(1)
	r.stop() // the drain cuts it off
	r.await("the span ends", func() bool { return len(spans.Ended()) == 3 })
	for i, want := range []string{"", outcomeUnknown, outcomeGone} {
		span := spans.Ended()[i]
		if got := span.Status().Description; got != want {
			t.Errorf("span %d: got status %q, want %q", i, got, want)
		}
		if span.Parent().IsValid() {
			t.Errorf("span %d has a parent, and the record has none", i)
		}
	}
}

// What is not sampled allocates what it does without tracing.
func TestUnsampledBatchesAllocateNothingMore(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	was := fairness
	fairness = fence.Fairness{} // a pause has a view be read
	defer func() { fairness = was }()
	for _, headers := range [][]kmsg.Header{nil, {{Key: headerParent, Value: []byte(testParent[:54] + "0")}}} {
		q := newQuickLeader(t, 1, "fenced")
		_, tracing := spansOf(isSampled)
		r := startFenced(t, Config{Bootstrap: []string{q.server.Addr()}, Tracing: tracing})
		w := newQuickWriter(t, r.Addr(), "fenced", 0, 1, 1, headers...)
		for range 100 { // buffers and memories grow at first
			w.round()
		}
		if got := testing.AllocsPerRun(200, w.round); got > 3 {
			t.Errorf("%d headers: got %v allocations, want at most 3", len(headers), got)
		}
	}
}
