package otlp

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The types below are the JSON form of OTLP's ExportTraceServiceRequest: ids are hexadecimal,
// 64-bit numbers are strings.

type request struct {
	ResourceSpans []resourceSpans `json:"resourceSpans"`
}

type resourceSpans struct {
	Resource struct {
		Attributes []keyValue `json:"attributes"`
	} `json:"resource"`
	ScopeSpans []scopeSpans `json:"scopeSpans"`
}

type scopeSpans struct {
	Scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	} `json:"scope"`
	Spans []spanData `json:"spans"`
}

type spanData struct {
	TraceID      string     `json:"traceId"`
	SpanID       string     `json:"spanId"`
	TraceState   string     `json:"traceState,omitempty"`
	ParentSpanID string     `json:"parentSpanId,omitempty"`
	Flags        uint32     `json:"flags"`
	Name         string     `json:"name"`
	Kind         int        `json:"kind"`
	Start        string     `json:"startTimeUnixNano"`
	End          string     `json:"endTimeUnixNano"`
	Attributes   []keyValue `json:"attributes,omitempty"`
	Links        []link     `json:"links,omitempty"`
	Status       struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	} `json:"status"`
}

// link names another span that caused this one.
type link struct {
	TraceID string `json:"traceId"`
	SpanID  string `json:"spanId"`
	Flags   uint32 `json:"flags"`
}

type keyValue struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

type value struct {
	String *string  `json:"stringValue,omitempty"`
	Bool   *bool    `json:"boolValue,omitempty"`
	Int    *string  `json:"intValue,omitempty"`
	Double *float64 `json:"doubleValue,omitempty"`
	Array  *array   `json:"arrayValue,omitempty"`
}

type array struct {
	Values []value `json:"values"`
}

// statusCodes are OTLP's codes of a span's status. The SDK numbers them in another order.
var statusCodes = map[codes.Code]int{codes.Ok: 1, codes.Error: 2}

// newRequest makes the request that sends spans, at least one. All are of the same resource and
// scope.
func newRequest(spans []sdktrace.ReadOnlySpan) request {
	var rs resourceSpans
	rs.Resource.Attributes = attributes(spans[0].Resource().Attributes())
	var ss scopeSpans
	ss.Scope.Name, ss.Scope.Version = spans[0].InstrumentationScope().Name,
		spans[0].InstrumentationScope().Version
	for _, s := range spans {
		c := s.SpanContext()
		d := spanData{
			TraceID: c.TraceID().String(), SpanID: c.SpanID().String(),
			TraceState: c.TraceState().String(), Flags: uint32(c.TraceFlags()),
			Name: s.Name(), Kind: int(s.SpanKind()),
			Start: nanoseconds(s.StartTime()), End: nanoseconds(s.EndTime()),
			Attributes: attributes(s.Attributes()),
		}
		if p := s.Parent(); p.SpanID().IsValid() {
			d.ParentSpanID = p.SpanID().String()
		}
		for _, l := range s.Links() {
			of := l.SpanContext
			d.Links = append(d.Links, link{of.TraceID().String(), of.SpanID().String(),
				uint32(of.TraceFlags())})
		}
		d.Status.Code, d.Status.Message = statusCodes[s.Status().Code], s.Status().Description
		ss.Spans = append(ss.Spans, d)
	}
	rs.ScopeSpans = []scopeSpans{ss}
	return request{[]resourceSpans{rs}}
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func attributes(list []attribute.KeyValue) []keyValue {
	kvs := make([]keyValue, 0, len(list))
	for _, kv := range list {
		kvs = append(kvs, keyValue{string(kv.Key), newValue(kv.Value)})
	}
	return kvs
}

func newValue(v attribute.Value) value {
	switch v.Type() {
	case attribute.BOOL:
		return value{Bool: new(v.AsBool())}
	case attribute.INT64:
		return value{Int: new(strconv.FormatInt(v.AsInt64(), 10))}
	case attribute.FLOAT64:
		return value{Double: new(v.AsFloat64())}
	case attribute.STRINGSLICE:
		a := array{Values: []value{}}
		for _, s := range v.AsStringSlice() {
			a.Values = append(a.Values, value{String: new(s)})
		}
		return value{Array: &a}
	case attribute.STRING:
		return value{String: new(v.AsString())}
	default:
		return value{String: new(v.String())}
	}
}

// withDefaultName names a resource after the program unless it has a name.
func withDefaultName(r *resource.Resource) *resource.Resource {
	merged, err := resource.Merge(r,
		resource.NewSchemaless(attribute.String("service.name", serviceName)))
	if err != nil {
		return r
	}
	return merged
}
