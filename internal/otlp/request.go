package otlp

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The types below are OTLP's ExportTraceServiceRequest as its JSON has it: ids are
// hexadecimal, 64-bit numbers are strings.

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
	Status       struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	} `json:"status"`
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

// Codes of a span's status: OTLP counts them in another order than the SDK.
var statusCodes = map[codes.Code]int{codes.Ok: 1, codes.Error: 2}

// requestOf is the request that sends spans. All are of one resource and scope.
func requestOf(spans []sdktrace.ReadOnlySpan) request {
	var rs resourceSpans
	rs.Resource.Attributes = attributes(spans[0].Resource().Attributes())
	var ss scopeSpans
	ss.Scope.Name, ss.Scope.Version = spans[0].InstrumentationScope().Name, spans[0].InstrumentationScope().Version
	for _, s := range spans {
		c := s.SpanContext()
		d := spanData{
			TraceID: c.TraceID().String(), SpanID: c.SpanID().String(), TraceState: c.TraceState().String(), Flags: uint32(c.TraceFlags()),
			Name: s.Name(), Kind: int(s.SpanKind()), Start: nano(s.StartTime()), End: nano(s.EndTime()), Attributes: attributes(s.Attributes()),
		}
		if p := s.Parent(); p.SpanID().IsValid() {
			d.ParentSpanID = p.SpanID().String()
		}
		d.Status.Code, d.Status.Message = statusCodes[s.Status().Code], s.Status().Description
		ss.Spans = append(ss.Spans, d)
	}
	rs.ScopeSpans = []scopeSpans{ss}
	return request{[]resourceSpans{rs}}
}

func nano(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func attributes(list []attribute.KeyValue) []keyValue {
	kvs := make([]keyValue, 0, len(list))
	for _, kv := range list {
		kvs = append(kvs, keyValue{string(kv.Key), valueOf(kv.Value)})
	}
	return kvs
}

func valueOf(v attribute.Value) value {
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

// named is a resource with our name, where nobody gave another.
func named(r *resource.Resource) *resource.Resource {
	merged, err := resource.Merge(r, resource.NewSchemaless(attribute.String("service.name", scope)))
	if err != nil {
		return r
	}
	return merged
}
