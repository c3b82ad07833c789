package sources_test

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// kept is a recorder that keeps everything.
type kept struct {
	mu   sync.Mutex
	list []adminapi.Record
}

func (k *kept) Record(r adminapi.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(k.list, r)
}

func (*kept) Pushed(string) []adminapi.Record { return nil }

// tree is a trace's records in short: each kind below that of its parent. Records of one span stand
// there once.
func (k *kept) tree(trace string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	kinds := map[string]string{}
	for _, r := range k.list {
		if r.Trace == trace {
			kinds[r.Span] = r.Kind
		}
	}
	var lines []string
	for _, r := range k.list {
		if r.Trace == trace {
			lines = append(lines, r.Kind+" below "+cmp.Or(kinds[r.Parent], r.Parent, "nothing"))
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), ", ")
}

// traces are the ids of the traces of runs.
func (k *kept) traces() (list []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.list {
		if r.Kind == adminapi.RecordSource {
			list = append(list, r.Trace)
		}
	}
	return list
}

// greeter is a provider with a tool.
type greeter struct {
	conn   *gateway.Conn
	called []string // traceparents
}

func (p *greeter) Send(m protocol.Message) {
	if call, ok := m.(*protocol.ToolCall); ok {
		p.called = append(p.called, call.Traceparent)
		go p.conn.Receive(protocol.Append(nil,
			&protocol.ToolResult{ID: call.ID, Data: protocol.Raw(`"hi"`)}))
	}
}

func (*greeter) Flush() {}

func (*greeter) Close(protocol.CloseCode, string) {}

// traced is a world that keeps records, makes spans if there are options for them, and has a
// session with a tool.
func traced(
	t *testing.T, spans ...sdktrace.TracerProviderOption,
) (*world, *kept, *greeter, *gateway.Session) {
	t.Helper()
	w, k, p := newWorld(t), &kept{}, &greeter{}
	o := gateway.Options{
		Recorder: k,
		Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}},
	}
	if spans != nil {
		o.Tracer = sdktrace.NewTracerProvider(spans...).Tracer("test")
	}
	w.gateway, w.record = gateway.New(o), k.Record
	s := w.session()
	p.conn = w.gateway.Connect(p, gateway.ConnOptions{})
	p.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: w.gateway.InstanceToken()}))
	p.conn.Receive(protocol.Append(nil, &protocol.Hello{
		Name: "echo", ProtocolVersion: new(protocol.Version), Session: s.ID(),
		Tools: []protocol.Tool{{Name: "greet", Description: "d",
			Parameters: protocol.Raw(`{"type":"object"}`)}},
	}))
	return w, k, p, s
}

const wholeTree = "call below turn, push below source, source below nothing, turn below push"

// One run is one trace, from the source to the provider: in the records with and without an
// exporter, and in the spans.
func TestTraceOfAPrompt(t *testing.T) {
	for _, exports := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			out := tracetest.NewInMemoryExporter()
			var options []sdktrace.TracerProviderOption
			if exports {
				options = append(options, sdktrace.WithSyncer(out))
			}
			w, k, p, s := traced(t, options...)
			stop := w.run("prompt = \"call:greet {}\"\nevery = \"10m\"\nmax_runs = 2\n", s.ID())
			<-time.After(time.Hour)
			synctest.Wait()
			runs := k.traces()
			if len(runs) != 2 || runs[0] == runs[1] {
				t.Fatalf("the traces of 2 runs are %q, want 2", runs)
			}
			for i, trace := range runs {
				if got := k.tree(trace); got != wholeTree {
					t.Errorf("run %d, exported %v: %s; want %s", i+1, exports, got, wholeTree)
				}
				if !strings.Contains(p.called[i], trace) {
					t.Errorf("the provider was told %q, want the trace %s", p.called[i], trace)
				}
			}
			var names []string
			for _, span := range out.GetSpans() {
				names = append(names, span.Name)
			}
			slices.Sort(names)
			want := "execute_tool greet, invoke_agent local, push watch, source watch"
			if got := strings.Join(slices.Compact(names), ", "); exports && got != want {
				t.Errorf("the spans are %s, want %s", got, want)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			p.conn.Closed()
			w.end()
		})
	}
}

// A delivery of a webhook continues the trace that it names. Without a trace that W3C allows, it
// begins one.
func TestTraceOfAWebhook(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	synctest.Test(t, func(t *testing.T) {
		w, k, p, _ := traced(t)
		file := plainHook + "text = '{body}'\nlevel = \"inject\"\n"
		hook := hookFile(t, file)
		stop := w.run(file, protocol.AllSessions)
		w.bound()
		first := "00-" + trace + "-00f067aa0ba902b7-01"
		for i, traceparents := range [][]string{
			{first}, {"00-" + strings.ToUpper(trace) + "-00f067aa0ba902b7-01"}, nil, {first, first},
		} {
			body := "call:greet {\"n\":" + string(rune('1'+i)) + "}"
			h := with(github(body), http.Header{"Content-Type": nil, "Traceparent": traceparents,
				"Tracestate": {strings.Repeat("a=b,", 1<<16)}, "X-Github-Delivery": {body}})
			if got := w.post(hook, h, body); got != http.StatusAccepted {
				t.Errorf("the answer to the delivery of %q: got %d, want 202", traceparents, got)
			}
			synctest.Wait()
		}
		runs := k.traces()
		if len(runs) != 4 || runs[0] != trace || runs[1] == runs[2] || len(runs[1]) != 32 ||
			strings.EqualFold(runs[1], trace) || slices.Contains(runs[1:], trace) {
			t.Fatalf("the traces are %q, want the one given and three of the gateway's", runs)
		}
		given := strings.Replace(wholeTree, "source below nothing", "source below 00f067aa0ba902b7",
			1)
		for i, want := range []string{given, wholeTree, wholeTree, wholeTree} {
			if got := k.tree(runs[i]); got != want {
				t.Errorf("delivery %d: %s; want %s", i+1, got, want)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		p.conn.Closed()
		w.end()
	})
}

// The events of a command's output, a directory's change and a comparison are below their run.
func TestTraceOfEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		file   string
		happen func(*world)
	}{
		"lines":   {"run = \"echo one; echo two\"\n", nil},
		"compare": {"run = \"exit 3\"\ncompare = \"exit\"\nevery = \"1h\"\n", nil},
		"files": {"files = [\"*.go\"]\n", func(w *world) {
			w.waitLine("tapgw: the files are watched")
			w.write("a.go", "1")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w, k, p, s := traced(t)
			stop := w.run(tt.file+"level = \"keep\"\n", s.ID())
			if tt.happen != nil {
				tt.happen(w)
			}
			w.wait(s, 1)
			if err := stop(); err != nil {
				t.Error(err)
			}
			p.conn.Closed()
			w.end()
			k.mu.Lock()
			i := slices.IndexFunc(k.list, func(r adminapi.Record) bool {
				return r.Kind == adminapi.RecordPush
			})
			push := k.list[i]
			k.mu.Unlock()
			if len(push.Trace) != 32 || len(push.Parent) != 16 {
				t.Errorf("the push is span %q below %q in %q, want it below a run", push.Span,
					push.Parent, push.Trace)
			}
			want := "push below source, source below nothing"
			if got := k.tree(push.Trace); got != want && name == "files" {
				t.Errorf("the trace has %s, want %s", got, want)
			}
		})
	}
}

// A source that is stopped in a run ends the spans that it began.
func TestSpansOfAStoppedSource(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	w, _, p, s := traced(t, sdktrace.WithSpanProcessor(spans))
	stop := w.run("run = \"echo ready; exec sleep 1000\"\nlevel = \"inject\"\n", s.ID())
	w.wait(s, 1)
	if err := stop(); err != nil {
		t.Error(err)
	}
	p.conn.Closed()
	w.end()
	if began, ended := len(spans.Started()), len(spans.Ended()); began != 3 || ended != 3 {
		t.Errorf("%d spans began and %d ended, want 3: the run, the push and the turn", began,
			ended)
	}
}
