package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

// noTool are the files of this package without a tool, besides external*.go.
var noTool = []string{"clock.go", "doc.go", "edits.go", "tools.go"}

// toolFiles lists the files that must register one tool each, without ".go".
func toolFiles(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") && !slices.Contains(noTool, f) && !strings.HasPrefix(f, "external") {
			names = append(names, strings.TrimSuffix(f, ".go"))
		}
	}
	return names
}

// registered lists the names of the tools that a source file registers, with "?" for a
// name that is no literal.
func registered(t *testing.T, file string, src any) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fun := call.Fun
		if x, ok := fun.(*ast.IndexExpr); ok { // add[In](...)
			fun = x.X
		}
		if id, ok := fun.(*ast.Ident); !ok || id.Name != "add" {
			return true
		}
		name := "?"
		ast.Inspect(call.Args[0], func(n ast.Node) bool {
			if kv, ok := n.(*ast.KeyValueExpr); ok {
				key, _ := kv.Key.(*ast.Ident)
				value, _ := kv.Value.(*ast.BasicLit)
				if key != nil && key.Name == "Name" && value != nil {
					name, _ = strconv.Unquote(value.Value)
				}
			}
			return true
		})
		names = append(names, name)
		return true
	})
	return names
}

// TestOneToolAFile fails on a file that does not register exactly one tool of its name.
func TestOneToolAFile(t *testing.T) {
	files := toolFiles(t)
	for _, name := range files {
		if got := registered(t, name+".go", nil); !slices.Equal(got, []string{name}) {
			t.Errorf("%s.go registers %q, want %q alone", name, got, name)
		}
	}
	var all []string
	for _, tool := range All() {
		all = append(all, tool.Name)
	}
	if !slices.Equal(all, files) {
		t.Errorf("All has the tools %q, want those of the files: %q", all, files)
	}
}

// TestRegistered proves that the test above can fail.
func TestRegistered(t *testing.T) {
	tests := []struct {
		src  string
		want []string
	}{
		{`var _ = add(&Tool{Name: "a"}, f)`, []string{"a"}},
		{`func init() { add[in](&Tool{Name: "a"}, f) }`, []string{"a"}},
		{`var _ = 1`, nil},
		{`var _, _ = add(&Tool{Name: "a"}, f), add(&Tool{Name: "b"}, f)`, []string{"a", "b"}},
		{`const n = "a"; var _ = add(&Tool{Name: n}, f)`, []string{"?"}},
	}
	for _, tt := range tests {
		if got := registered(t, "x.go", "package tools\n"+tt.src); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.src, got, tt.want)
		}
	}
}

// TestSchemas compares what the model and the server see of each tool with a golden file;
// -update writes the files.
func TestSchemas(t *testing.T) {
	dir := filepath.Join("testdata", "schemas")
	for _, tool := range All() {
		t.Run(tool.Name, func(t *testing.T) {
			if err := tool.Check(); err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			enc := json.NewEncoder(&got)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			if err := enc.Encode(map[string]any{
				"name": tool.Name, "description": tool.Description, "kind": tool.Kind.String(),
				"inputSchema": tool.Parameters,
			}); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, tool.Name+".json")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("got another %s, want it as it is (go test -update writes it):\n%s", file, got.Bytes())
			}
		})
	}
	golden, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range golden {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); builtIn(name) == nil {
			t.Errorf("%s is of no tool, want it removed", file)
		}
	}
}

// made returns a tool that is made at run time, as a drop-in is.
func made(run func(context.Context, *Env, json.RawMessage) (Result, error)) *Tool {
	return &Tool{
		Name: "made", Description: "A tool of the test.", Run: run,
		Parameters: json.RawMessage(
			`{"type":"object","properties":{"path":{"type":"string","description":"d"},"n":{"type":"integer","description":"d"}},"required":["path"],"additionalProperties":false}`,
		),
	}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Tool)
		want   string
	}{
		{"fit", func(*Tool) {}, ""},
		{"no name", func(t *Tool) { t.Name = "" }, "name"},
		{"name with a space", func(t *Tool) { t.Name = "my tool" }, `"my tool"`},
		{"no description", func(t *Tool) { t.Description = " " }, "description"},
		{"no schema", func(t *Tool) { t.Parameters = nil }, "schema"},
		{"no required", func(t *Tool) { t.Parameters = json.RawMessage(`{"type":"object","properties":{}}`) },
			"required"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tool := made(nil)
			tt.change(tool)
			if err := tool.Check(); tt.want == "" && err != nil ||
				tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	tool := made(nil)
	tests := []struct{ args, want string }{
		{`{"path":"x"}`, ""},
		{`{"path":"x","n":1}`, ""},
		{``, "path"},
		{`{}`, "path"},
		{`{"path":5}`, "path"},
		{`{"path":"x","n":"1"}`, "n"},
		{`{"path":"x","other":1}`, "other"},
		{`[]`, "object"},
		{`null`, "object"},
		{`{"path"`, "wrong arguments for made"},
	}
	for _, tt := range tests {
		err := tool.Validate(json.RawMessage(tt.args))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got error %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestCall(t *testing.T) {
	ok := json.RawMessage(`{"path":"x"}`)
	cancelled := errors.New("") // stands for: cancel the call's context
	tests := []struct {
		name    string
		args    json.RawMessage
		timeout time.Duration
		cause   error
		run     func(context.Context) (Result, error)
		want    string // of the result, or of the error
		is      error
		took    time.Duration
	}{
		{name: "answers", run: func(context.Context) (Result, error) { return textResult("a", "b"), nil },
			want: "a\nb"},
		{name: "fails", run: func(context.Context) (Result, error) { return Result{}, errors.New("no such thing") },
			want: "no such thing", is: errAny},
		{name: "wrong arguments", args: json.RawMessage(`{}`),
			run: func(context.Context) (Result, error) { panic("it ran") }, want: `"path"`, is: errAny},
		{name: "panics", run: func(context.Context) (Result, error) { panic("boom") }, want: "made broke down (boom)",
			is: errAny},
		{name: "ends its goroutine",
			run:  func(context.Context) (Result, error) { runtime.Goexit(); return Result{}, nil },
			want: "made broke down", is: errAny},
		{name: "heeds its timeout", timeout: time.Second,
			run:  func(ctx context.Context) (Result, error) { <-ctx.Done(); return Result{}, ctx.Err() },
			want: "made did not finish within 1s", is: context.DeadlineExceeded, took: time.Second},
		{name: "says more at its timeout", timeout: time.Second,
			run:  func(ctx context.Context) (Result, error) { <-ctx.Done(); return Result{}, errors.New("killed") },
			want: "made did not finish within 1s: killed", is: context.DeadlineExceeded, took: time.Second},
		{name: "answers at its timeout", timeout: time.Second,
			run:  func(ctx context.Context) (Result, error) { <-ctx.Done(); return textResult("so far"), nil },
			want: "so far", took: time.Second},
		{name: "ignores its timeout",
			run:  func(ctx context.Context) (Result, error) { <-forever(ctx); return textResult("late"), nil },
			want: "made did not finish within 2m0s", is: context.DeadlineExceeded, took: DefaultTimeout + cancelGrace},
		{name: "is cancelled", cause: cancelled,
			run:  func(ctx context.Context) (Result, error) { <-ctx.Done(); return Result{}, ctx.Err() },
			want: "made was cancelled", is: context.Canceled, took: time.Millisecond},
		{name: "ignores its cancel", cause: cancelled,
			run:  func(ctx context.Context) (Result, error) { <-forever(ctx); return textResult("late"), nil },
			want: "made was cancelled", is: context.Canceled, took: time.Millisecond + cancelGrace},
		{name: "caller's deadline", cause: context.DeadlineExceeded,
			run:  func(ctx context.Context) (Result, error) { <-ctx.Done(); return Result{}, ctx.Err() },
			want: "made did not finish in time", is: context.DeadlineExceeded, took: time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				defer close(hang)
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), hangKey{}, hang))
				defer cancel()
				switch {
				case errors.Is(tt.cause, cancelled):
					time.AfterFunc(time.Millisecond, cancel)
				case errors.Is(tt.cause, context.DeadlineExceeded):
					ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
					defer cancel()
				}
				tool := made(func(ctx context.Context, _ *Env, _ json.RawMessage) (Result,
					error) {
					return tt.run(ctx)
				})
				tool.Timeout = tt.timeout
				if tt.args == nil {
					tt.args = ok
				}
				start := time.Now()
				res, err := tool.Call(ctx, &Env{}, tt.args)
				if took := time.Since(start); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				if tt.is == nil {
					if err != nil || res.Text() != tt.want {
						t.Errorf("got %q, error %v, want %q", res.Text(), err, tt.want)
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), tt.want) ||
					!errors.Is(tt.is, errAny) && !errors.Is(err, tt.is) {
					t.Errorf("got error %v, want %q that is %v", err, tt.want, tt.is)
				}
			})
		})
	}
}

// hangKey is the context key of a channel that is closed when TestCall ends.
type hangKey struct{}

func forever(ctx context.Context) chan struct{} { return ctx.Value(hangKey{}).(chan struct{}) }

var errAny = errors.New("any")

func TestPanicIsLogged(t *testing.T) {
	tool := made(func(context.Context, *Env, json.RawMessage) (Result, error) { panic("boom") })
	var log bytes.Buffer
	env := &Env{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	_, err := tool.Call(t.Context(), env, json.RawMessage(`{"path":"x"}`))
	var p *PanicError
	if !errors.As(err, &p) || p.Value != "boom" {
		t.Errorf("got %#v, want a PanicError with the value boom", err)
	}
	for _, part := range []string{"level=DEBUG", "tool=" + tool.Name, "TestPanicIsLogged"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log is %s, want %q in it", &log, part)
		}
	}
}
