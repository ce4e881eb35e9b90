package proxy

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/wire"
)

// Tracing has batches with a condition traced, one span each, from the request's arrival
// to the verdict. Where several records share a batch, the first one says which trace
// it belongs to (W3C Trace Context, in the headers traceparent and tracestate).
type Tracing struct {
	// Tracer makes the spans, and records all that it is asked for.
	Tracer trace.Tracer
	// Sampled decides which batches are traced, before anything is made for one. Without
	// a traceparent the parent is not valid. It is called concurrently.
	Sampled func(parent trace.SpanContext) bool
}

// Headers of W3C Trace Context.
const (
	headerParent = "traceparent"
	headerState  = "tracestate"
)

// maxTraceState is the longest tracestate that is taken over, in bytes: what all who pass
// it on are to keep (W3C Trace Context, section 3.3.1.5).
const maxTraceState = 512

// outcomeGone is of batches whose connection ended first; only spans name it.
const outcomeGone = "connection_lost"

// traced is a batch's span. Who decides the batch ends it: its clientLoop before it is
// admitted and once it is withdrawn from its lane, in between whoever has the lane's lock.
type traced struct {
	span    trace.Span
	outcome string
}

// traceIfSampled begins a batch's span, if it is to have one. What is not sampled costs
// a look at the record's headers, and nothing if nothing is traced.
func (f *fencing) traceIfSampled(e *entry, topic string, in *wire.Inspector) {
	if f.tracing == nil || e.x == nil {
		return
	}
	parent := parseParent(in.FirstHeader(headerParent))
	if !f.tracing.Sampled(parent) {
		return
	}
	ctx := context.Background()
	if parent.IsValid() {
		if text := in.FirstHeader(headerState); len(text) <= maxTraceState {
			if state, err := trace.ParseTraceState(string(text)); err == nil {
				parent = parent.WithTraceState(state)
			}
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	_, span := f.tracing.Tracer.Start(ctx, "conditional append",
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(wall().Add(-instant().Sub(e.x.arrived))),
		trace.WithAttributes(
			attribute.String("messaging.system", "kafka"),
			attribute.String("messaging.destination.name", topic),
			attribute.Int("messaging.destination.partition.id", int(e.result.Partition)),
		))
	e.traced = &traced{span: span, outcome: outcomeRefused}
}

// expects says what the batch's condition is.
func (t *traced) expects(atEnd bool, expected ps.Offset) {
	switch {
	case t == nil:
	case atEnd:
		t.span.SetAttributes(attribute.String("offsetproxy.expected_offset", "end"))
	default:
		t.span.SetAttributes(attribute.Int64("offsetproxy.expected_offset", int64(expected)))
	}
}

// sent notes that the batch is sent, perhaps again.
func (t *traced) sent() {
	if t != nil {
		t.span.AddEvent("sent")
	}
}

// became says what became of the batch.
func (t *traced) became(outcome string) {
	if t != nil {
		t.outcome = outcome
	}
}

// end ends the span with what the client is told.
func (t *traced) end(r *wire.ProduceResult) {
	if t == nil {
		return
	}
	t.span.SetAttributes(attribute.String("offsetproxy.outcome", t.outcome))
	if r.BaseOffset >= 0 {
		t.span.SetAttributes(attribute.Int64("messaging.kafka.offset", r.BaseOffset))
	}
	if r.ErrorCode != 0 {
		t.span.SetAttributes(attribute.Int("offsetproxy.error_code", int(r.ErrorCode)))
	}
	switch t.outcome {
	case outcomeUnknown, outcomeViolation, outcomeBroker, outcomeFailed, outcomeGone:
		t.span.SetStatus(codes.Error, t.outcome)
	}
	t.span.End()
}

const (
	parentVersion0 = 55 // length of version 0: 00-(32 digits)-(16 digits)-(2 digits)
	traceIDAt      = 3
	spanIDAt       = 36
	flagsAt        = 53
)

// parseParent reads a traceparent (W3C Trace Context, section 3.2) without allocating;
// what is not one is not valid.
func parseParent(b []byte) trace.SpanContext {
	var c trace.SpanContextConfig
	var version, flags [1]byte
	switch {
	case len(b) < parentVersion0, b[2] != '-', b[spanIDAt-1] != '-', b[flagsAt-1] != '-',
		!digits(version[:], b[:2]), version[0] == 0xff,
		version[0] == 0 && len(b) > parentVersion0, len(b) > parentVersion0 && b[parentVersion0] != '-',
		!digits(c.TraceID[:], b[traceIDAt:spanIDAt-1]), !digits(c.SpanID[:], b[spanIDAt:flagsAt-1]),
		!digits(flags[:], b[flagsAt:parentVersion0]):
		return trace.SpanContext{}
	}
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0])&trace.FlagsSampled, true
	if parent := trace.NewSpanContext(c); parent.IsValid() {
		return parent
	}
	return trace.SpanContext{}
}

// digits reads hexadecimal digits, of which only small letters are allowed.
func digits(dst, b []byte) bool {
	for _, d := range b {
		if 'A' <= d && d <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(dst, b)
	return err == nil
}
