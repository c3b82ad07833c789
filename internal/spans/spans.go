// Package spans gives the gateway's work places in a trace, by the ids of W3C: records keep them,
// providers and hosts get them as traceparent, and with an exporter each place is a span of
// OpenTelemetry. semconv.go has the names.
//
// A traceparent is checked once, where it comes in. From there on it always has both ids.
package spans

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Maker makes spans. The nil Maker makes empty spans, and passes on the traceparents of callers.
// Any goroutine may call its methods.
type Maker struct {
	tracer trace.Tracer // nil: spans are not exported
}

// NewMaker returns a maker of spans for tracer. With a nil tracer, spans have ids but are not
// exported. Without tracer and needsIDs, NewMaker returns nil.
func NewMaker(tracer trace.Tracer, needsIDs bool) *Maker {
	if tracer == nil && !needsIDs {
		return nil
	}
	return &Maker{tracer}
}

// Exports reports whether spans are exported, and do not only have ids.
func (m *Maker) Exports() bool { return m != nil && m.tracer != nil }

// Info describes a span that begins. Samplers see the attributes.
type Info struct {
	Name  string
	Kind  trace.SpanKind
	Attrs []attribute.KeyValue
	Link  string // the traceparent of another trace that caused it, or ""
}

// Span is an operation that has begun. The zero Span has no ids, and its methods have no effect.
type Span struct {
	// Traceparent is the place of the span, for the operations below it. A nil [Maker] leaves the
	// caller's there.
	Traceparent string
	parent      string
	otel        trace.Span // nil: the span is not exported
}

// Start begins a span below parent, a traceparent. An empty or wrong parent begins a trace.
// describe is called only if the span is exported.
func (m *Maker) Start(parent string, describe func() Info) Span {
	parent = Checked(parent)
	switch {
	case m == nil:
		return Span{Traceparent: parent}
	case m.tracer == nil:
		return Span{Traceparent: newTraceparent(parent), parent: parent}
	}
	info := describe()
	options := []trace.SpanStartOption{trace.WithSpanKind(info.Kind),
		trace.WithAttributes(info.Attrs...)}
	if link := trace.SpanContextFromContext(Context(context.Background(),
		info.Link)); link.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: link}))
	}
	_, span := m.tracer.Start(Context(context.Background(), parent), info.Name, options...)
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), span), carrier)
	return Span{Traceparent: carrier["traceparent"], parent: parent, otel: span}
}

// IDs returns the ids of the span's trace, of itself and of the span above it, in hexadecimal. A
// missing id is "".
func (s *Span) IDs() (traceID, spanID, parentID string) {
	return TraceID(cmp.Or(s.Traceparent, s.parent)), spanIDOf(s.Traceparent), spanIDOf(s.parent)
}

// Below is a place below a traceparent, which was checked, for an operation without a span of its
// own.
func Below(traceparent string) Span { return Span{parent: traceparent} }

// Exported reports whether the span is exported. If it is not, the caller need not make attributes.
func (s *Span) Exported() bool { return s.otel != nil }

// Set sets attributes.
func (s *Span) Set(attrs ...attribute.KeyValue) {
	if s.otel != nil {
		s.otel.SetAttributes(attrs...)
	}
}

// Fail marks the span's operation as failed: class is one of few words. Spans have no texts of
// errors, because these quote the model, a tool or the user. The class "" leaves the span as it is.
func (s *Span) Fail(class string) {
	if s.otel != nil && class != "" {
		s.otel.SetAttributes(attribute.String(ErrorType, class))
		s.otel.SetStatus(codes.Error, "")
	}
}

// End ends the span. Only the first call counts.
func (s *Span) End() {
	if s.otel != nil {
		s.otel.End()
	}
}

// Context returns ctx with the remote span of a traceparent, so that spans that others start with
// it are below that span. For an empty or wrong traceparent it returns ctx.
func Context(ctx context.Context, traceparent string) context.Context {
	if traceparent = Checked(traceparent); traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx,
		propagation.MapCarrier{"traceparent": traceparent})
}

// A traceparent of version 00: 00-TRACE-SPAN-FLAGS, of 32, 16 and 2 hexadecimal digits in lower
// case.
const (
	traceStart, traceEnd = 3, 35
	spanStart, spanEnd   = 36, 52
	flagsStart           = 53
	length               = 55
	noTrace              = "00000000000000000000000000000000"
	sampled              = "01"
	hexDigits            = "0123456789abcdef"
)

// Checked returns a traceparent as version 00 writes it, or "" for one that W3C calls invalid. Of a
// later version and of the flags, it reads only the known parts.
func Checked(text string) string {
	if len(text) < length || text[2] != '-' || text[traceEnd] != '-' || text[spanEnd] != '-' ||
		!isHex(text[:2]) || !isHex(text[traceStart:traceEnd]) || !isHex(text[spanStart:spanEnd]) ||
		!isHex(text[flagsStart:length]) || text[traceStart:traceEnd] == noTrace ||
		text[spanStart:spanEnd] == noTrace[:spanEnd-spanStart] {
		return ""
	}
	isLater := text[:2] != "00"
	if text[:2] == "ff" || len(text) > length && (!isLater || text[length] != '-') {
		return ""
	}
	if flags := text[flagsStart:length]; isLater || flags[0] != '0' || flags[1] > '3' {
		return "00" + text[2:flagsStart] + "0" +
			string("0123"[strings.IndexByte(hexDigits, flags[1])&3])
	}
	return text
}

// FromHeader returns the traceparent of an HTTP request, checked, or "" if there is no valid one.
// W3C allows one such header, so several headers are not valid.
func FromHeader(h http.Header) string {
	if list := h.Values("Traceparent"); len(list) == 1 {
		return Checked(list[0])
	}
	return ""
}

func isHex(text string) bool {
	for i := range len(text) {
		if !isDigit[text[i]] {
			return false
		}
	}
	return true
}

// isDigit are the digits of ids. Comparisons instead would often be predicted wrongly by the
// processor, because the digits are random.
var isDigit = [256]bool{
	'0': true, '1': true, '2': true, '3': true, '4': true, '5': true, '6': true, '7': true,
	'8': true, '9': true, 'a': true, 'b': true, 'c': true, 'd': true, 'e': true, 'f': true,
}

// TraceID returns the trace's id in a traceparent that was checked; "" for "".
func TraceID(traceparent string) string {
	if traceparent == "" {
		return ""
	}
	return traceparent[traceStart:traceEnd]
}

func spanIDOf(traceparent string) string {
	if traceparent == "" {
		return ""
	}
	return traceparent[spanStart:spanEnd]
}

// newTraceparent makes a place below parent, or in a new trace for "". Its flags say that the trace
// is stored, because a record stores it.
func newTraceparent(parent string) string {
	var text [length]byte
	copy(text[:], "00-")
	if parent != "" {
		copy(text[traceStart:], parent[traceStart:traceEnd])
		copy(text[flagsStart:], parent[flagsStart:])
	} else {
		putID(text[traceStart:traceEnd])
		copy(text[flagsStart:], sampled)
	}
	putID(text[spanStart:spanEnd])
	text[traceEnd], text[spanEnd] = '-', '-'
	return string(text[:])
}

// putID writes a random id that is not zero. Ids are no secrets.
func putID(text []byte) {
	var id [8]byte
	for ; len(text) > 0; text = text[16:] {
		binary.BigEndian.PutUint64(id[:], max(rand.Uint64(), 1)) //nolint:gosec // see above
		hex.Encode(text, id[:])
	}
}
