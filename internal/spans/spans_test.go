package spans

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
	given   = "00-" + traceID + "-" + spanID + "-01"
)

func TestChecked(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"as it should be":         {given, given},
		"not sampled":             {given[:53] + "00", given[:53] + "00"},
		"a flag of level 2":       {given[:53] + "03", given[:53] + "03"},
		"a later version":         {"cc" + given[2:], given},
		"with more to come":       {"cc" + given[2:] + "-what-the-future-brings", given},
		"with other flags":        {"01" + given[2:53] + "f8", given[:53] + "00"},
		"flags that nobody knows": {given[:53] + "f9", given},
		"empty":                   {"", ""},
		"too short":               {given[:54], ""},
		"too long":                {given + "-00", ""},
		"a later one, too long":   {"cc" + given[2:] + "x", ""},
		"version ff":              {"ff" + given[2:], ""},
		"no version":              {"0x" + given[2:], ""},
		"upper case":              {strings.ToUpper(given), ""},
		"a trace of zeros":        {"00-" + strings.Repeat("0", 32) + given[35:], ""},
		"a span of zeros":         {given[:36] + strings.Repeat("0", 16) + "-01", ""},
		"no flags":                {given[:53] + "zz", ""},
		"other signs":             {strings.ReplaceAll(given, "-", "_"), ""},
		"a line more":             {given + "\n", ""},
		"much":                    {given + strings.Repeat("-", 1<<20), ""},
		"no ASCII of that length": {strings.Repeat("é", 28)[:55], ""},
	} {
		if got := Checked(tt.text); got != tt.want {
			t.Errorf("%s: got %.80q, want %q", name, got, tt.want)
		}
	}
}

// TestFromHeader: a request has one traceparent, or none.
func TestFromHeader(t *testing.T) {
	other := strings.Replace(given, traceID, strings.Repeat("a", 32), 1)
	for name, tt := range map[string]struct {
		h    http.Header
		want string
	}{
		"one":                {http.Header{"Traceparent": {given}}, given},
		"none":               {http.Header{}, ""},
		"a wrong one":        {http.Header{"Traceparent": {strings.ToUpper(given)}}, ""},
		"two":                {http.Header{"Traceparent": {given, other}}, ""},
		"the same one twice": {http.Header{"Traceparent": {given, given}}, ""},
		"an empty one first": {http.Header{"Traceparent": {"", given}}, ""},
		"two in one line":    {http.Header{"Traceparent": {given + "," + other}}, ""},
	} {
		if got := FromHeader(tt.h); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// FuzzChecked holds the check against OpenTelemetry's own.
func FuzzChecked(f *testing.F) {
	for _, text := range []string{given, "", "ff" + given[2:], "cc" + given[2:] + "-x",
		strings.ToUpper(given)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read := func(text string) trace.SpanContext {
			carrier := propagation.MapCarrier{"traceparent": text}
			return trace.SpanContextFromContext(
				propagation.TraceContext{}.Extract(context.Background(), carrier))
		}
		theirs, got := read(text), Checked(text)
		if got == "" {
			// they also take what follows a later version's flags
			if theirs.IsValid() && len(text) == length {
				t.Errorf("%q is refused, and OpenTelemetry reads %v", text, theirs)
			}
			return
		}
		if of := read(got); Checked(got) != got || len(got) != length ||
			TraceID(got) != of.TraceID().String() || spanIDOf(got) != of.SpanID().String() ||
			theirs.IsValid() && !theirs.Equal(of) {
			t.Errorf("%q became %q, which OpenTelemetry reads as %v and not %v", text, got, of,
				theirs)
		}
	})
}

// Ids stand below their parent's, are new ones, and do not begin with what is no id.
func TestIDs(t *testing.T) {
	m := NewMaker(nil, true)
	seen := map[string]bool{}
	for _, tt := range []struct{ parent, trace, above string }{
		{given, traceID, spanID}, {"cc" + given[2:] + "-x", traceID, spanID},
		{"ff" + given[2:], "", ""}, {"", "", ""},
	} {
		for range 100 {
			s := m.Start(tt.parent, nil)
			id, span, above := s.IDs()
			if Checked(s.Traceparent) != s.Traceparent || tt.trace != "" && id != tt.trace ||
				above != tt.above || seen[span] || tt.trace == "" && seen[id] {
				t.Fatalf("below %q: got %q below %q, want a new place in %q", tt.parent,
					s.Traceparent, above, tt.trace)
			}
			seen[span], seen[id] = true, true
		}
	}
}

// Where nobody keeps spans, nothing is made.
func TestNoMaker(t *testing.T) {
	m := NewMaker(nil, false)
	describe := func() Info { t.Error("a span is described, and nobody gets it"); return Info{} }
	if s := m.Start(given, describe); s.Traceparent != given || s.Exported() || m.Exports() {
		t.Errorf("got %+v, want what the caller gave", s)
	}
	if n := testing.AllocsPerRun(100, func() {
		s := m.Start(given, describe)
		s.Fail(ErrorRun)
		s.End()
	}); n != 0 {
		t.Errorf("a span that nobody keeps has %v allocations, want 0", n)
	}
	ids := NewMaker(nil, true)
	if n := testing.AllocsPerRun(100, func() {
		s := ids.Start(given, describe)
		s.End()
	}); n != 1 {
		t.Errorf("a span of ids has %v allocations, want 1, its text", n)
	}
}

// A span is below its parent and has a link to what else caused it; wrong ones are left out.
func TestExported(t *testing.T) {
	out := tracetest.NewInMemoryExporter()
	m := NewMaker(sdktrace.NewTracerProvider(sdktrace.WithSyncer(out)).Tracer("test"), false)
	link := strings.Replace(given, "4bf9", "ffff", 1)
	for _, l := range []string{link, "nonsense"} {
		s := m.Start(given, func() Info {
			return Info{Name: "n", Kind: trace.SpanKindServer, Link: l}
		})
		if !s.Exported() || TraceID(s.Traceparent) != traceID {
			t.Errorf("got the span %q, want one in %s", s.Traceparent, traceID)
		}
		s.Fail("TIMEOUT")
		s.End()
		s.End()
	}
	list := out.GetSpans()
	if len(list) != 2 || len(list[0].Links) != 1 || len(list[1].Links) != 0 ||
		list[0].Parent.SpanID().String() != spanID ||
		list[0].Links[0].SpanContext.TraceID().String() != TraceID(link) {
		t.Errorf("got %+v, want two spans, the first with a link to %s", list, link)
	}
}

// BenchmarkIDs is a span below another one, without an exporter. The processor predicts the digits
// of a single parent, so there are many.
func BenchmarkIDs(b *testing.B) {
	m := NewMaker(nil, true)
	parents := make([]string, 256)
	for i := range parents {
		parents[i] = m.Start("", nil).Traceparent
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s := m.Start(parents[i%len(parents)], nil)
		s.End()
	}
}
