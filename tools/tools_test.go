package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func textResult(parts ...string) Result { return Result{Parts: parts} }

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
		{"no required", func(t *Tool) {
			t.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		},
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
		if tt.want == "" && err != nil || tt.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tt.want)) {
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
		{name: "answers", run: func(context.Context) (Result, error) {
			return textResult("a", "b"), nil
		},
			want: "a\nb"},
		{name: "fails", run: func(context.Context) (Result, error) {
			return Result{}, errors.New("no such thing")
		},
			want: "no such thing", is: errAny},
		{name: "wrong arguments", args: json.RawMessage(`{}`),
			run: func(context.Context) (Result, error) {
				panic("it ran")
			}, want: `"path"`, is: errAny},
		{name: "panics", run: func(context.Context) (Result, error) {
			panic("boom")
		}, want: "made broke down (boom)",
			is: errAny},
		{name: "ends its goroutine",
			run:  func(context.Context) (Result, error) { runtime.Goexit(); return Result{}, nil },
			want: "made broke down", is: errAny},
		{name: "heeds its timeout", timeout: time.Second,
			run: func(ctx context.Context) (Result, error) {
				<-ctx.Done()
				return Result{}, ctx.Err()
			},
			want: "made did not finish within 1s", is: context.DeadlineExceeded, took: time.Second},
		{name: "says more at its timeout", timeout: time.Second,
			run: func(ctx context.Context) (Result, error) {
				<-ctx.Done()
				return Result{}, errors.New("killed")
			},
			want: "made did not finish within 1s: killed", is: context.DeadlineExceeded,
			took: time.Second},
		{name: "answers at its timeout", timeout: time.Second,
			run: func(ctx context.Context) (Result, error) {
				<-ctx.Done()
				return textResult("so far"), nil
			},
			want: "so far", took: time.Second},
		{name: "ignores its timeout",
			run: func(ctx context.Context) (Result, error) {
				<-forever(ctx)
				return textResult("late"), nil
			},
			want: "made did not finish within 2m0s", is: context.DeadlineExceeded,
			took: DefaultTimeout + cancelGrace},
		{name: "is cancelled", cause: cancelled,
			run: func(ctx context.Context) (Result, error) {
				<-ctx.Done()
				return Result{}, ctx.Err()
			},
			want: "made was cancelled", is: context.Canceled, took: time.Millisecond},
		{name: "ignores its cancel", cause: cancelled,
			run: func(ctx context.Context) (Result, error) {
				<-forever(ctx)
				return textResult("late"), nil
			},
			want: "made was cancelled", is: context.Canceled, took: time.Millisecond + cancelGrace},
		{name: "caller's deadline", cause: context.DeadlineExceeded,
			run: func(ctx context.Context) (Result, error) {
				<-ctx.Done()
				return Result{}, ctx.Err()
			},
			want: "made did not finish in time", is: context.DeadlineExceeded,
			took: time.Millisecond},
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
	env := &Env{Log: slog.New(slog.NewTextHandler(&log,
		&slog.HandlerOptions{Level: slog.LevelDebug}))}
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

// The time in which a person is asked does not count towards a tool's timeout.
func TestQuestionsTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := made(func(ctx context.Context, env *Env, _ json.RawMessage) (Result, error) {
			for range 2 {
				<-time.After(time.Second)
				if err := env.Outside(ctx, "/x", false); err != nil {
					return Result{}, err
				}
			}
			<-ctx.Done()
			return Result{}, ctx.Err()
		})
		tool.Timeout = 3 * time.Second
		start := time.Now()
		_, err := tool.Call(t.Context(),
			&Env{Outside: func(ctx context.Context, _ string, _ bool) error {
				select {
				case <-time.After(time.Hour):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}}, json.RawMessage(`{"path":"x"}`))
		want := 2*time.Hour + tool.Timeout
		if took := time.Since(start); took != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it took %v, %v; want %v, and then the end of its time", took, err, want)
		}
	})
}
