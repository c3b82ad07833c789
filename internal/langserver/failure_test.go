//go:build runtime

package langserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tapgw/internal/scriptmodel"
	"tapgw/internal/taptest/cloud"
	"tapgw/tools"
)

// A failure of the model ends the turn with an error, and the conversation goes on.
func TestFailingModel(t *testing.T) {
	r := shared(t)
	for name, tt := range map[string]struct {
		reply scriptmodel.Reply
		code  int
		text  string
	}{
		"broken": {scriptmodel.Reply{Status: http.StatusInternalServerError,
			Text: "the model broke"}, 500,
			"500"},
		"unauthorized": {scriptmodel.Reply{Status: http.StatusUnauthorized, Text: "no"}, 401, ""},
		"quota": {scriptmodel.Reply{Status: http.StatusPaymentRequired, Text: "no quota"},
			402, ""},
		"too many": {scriptmodel.Reply{Status: http.StatusTooManyRequests,
			Header: http.Header{"Retry-After": {"120"}}}, 429, ""},
		"cut off": {scriptmodel.Reply{Text: "half a\nline more", Cut: true}, 0, ""},
		"bad call": {scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: "read_file",
			Args: `{"filePath":`}}}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r.cloud.SetReply(func(*scriptmodel.Request) scriptmodel.Reply { return tt.reply })
			v := r.NewConversation(ConversationOptions{})
			_, err := v.Turn(within(t), "hello", nil)
			failed, ok := errors.AsType[*TurnError](err)
			if !ok {
				t.Fatalf("ended with %v, want a TurnError", err)
			}
			if failed.Message == "" || strings.Contains(err.Error(), "\n") ||
				failed.Code != tt.code || !strings.Contains(failed.Message, tt.text) {
				t.Errorf("the error is %+v, want one line with %v and %q", failed, tt.code, tt.text)
			}
			r.cloud.SetReply(func(*scriptmodel.Request) scriptmodel.Reply {
				return scriptmodel.Reply{Text: "well again"}
			})
			if result, err := v.Turn(within(t), "again", nil); err != nil ||
				result.Text != "well again" {
				t.Errorf(`the next turn: %+v %v, want "well again"`, result, err)
			}
		})
	}
}

func TestCancelInMidStream(t *testing.T) {
	r := shared(t)
	pause := make(chan struct{})
	defer close(pause)
	r.cloud.SetReply(func(*scriptmodel.Request) scriptmodel.Reply {
		return scriptmodel.Reply{Text: "first\nsecond third\nfourth", Pause: pause}
	})
	v := r.NewConversation(ConversationOptions{})
	ctx, cancel := context.WithCancelCause(within(t))
	because := errors.New("the user pressed Ctrl-C")
	n := r.requestCount()
	go func() {
		if _, err := r.cloud.WaitRequest(ctx, n+1); err == nil {
			cancel(because)
		}
	}()
	_, err := v.Turn(ctx, "hello", nil)
	if !errors.Is(err, ErrCancelled) || !errors.Is(err, because) {
		t.Errorf("ended with %v, want %v and %v", err, ErrCancelled, because)
	}
	// The model's endpoint is told, too.
	req := r.requestsAfter(n)[0]
	select {
	case <-req.Done():
	case <-within(t).Done():
		t.Fatal("the request to the model goes on, want it broken off")
	}
	if !req.Aborted() {
		t.Error("the request to the model went on, want it broken off")
	}
	r.cloud.SetReply(func(*scriptmodel.Request) scriptmodel.Reply {
		return scriptmodel.Reply{Text: "next"}
	})
	if result, err := v.Turn(within(t), "again", nil); err != nil || result.Text != "next" {
		t.Errorf(`the next turn: %+v %v, want "next"`, result, err)
	}
}

// The server waits for a tool's answer even when the turn is cancelled.
func TestCancelInMidTool(t *testing.T) {
	for name, heeds := range map[string]bool{"one that ends": true, "one that hangs": false} {
		t.Run(name, func(t *testing.T) {
			r := shared(t)
			begun := make(chan struct{})
			over := make(chan struct{})
			t.Cleanup(func() { close(over) })
			r.offer(t, tool("slow", func(ctx context.Context, _ Invocation) Outcome {
				close(begun)
				if !heeds {
					<-over
					return Succeeded("too late")
				}
				<-ctx.Done()
				return FailedWith(context.Cause(ctx))
			}))
			ctx, cancel := context.WithCancel(within(t))
			go func() {
				<-begun
				cancel()
			}()
			v := r.NewConversation(ConversationOptions{})
			e := &events{}
			_, err := v.Turn(ctx, "call:slow", e.add)
			if !errors.Is(err, ErrCancelled) || !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v, want %v and %v", err, ErrCancelled, context.Canceled)
			}
			if want := []string{"slow running", "slow cancelled"}; !slices.Equal(e.calls(), want) {
				t.Errorf("states %q, want %q", e.calls(), want)
			}
			if result, err := v.Turn(within(t), "again", nil); err != nil ||
				result.Text != "You said: again" {
				t.Errorf(`the next turn: %+v %v, want "You said: again"`, result, err)
			}
		})
	}
}

// A question that is open when its turn is cancelled is answered with no.
func TestCancelInMidQuestion(t *testing.T) {
	r := shared(t)
	ctx, cancel := context.WithCancel(within(t))
	r.set(func() {
		r.confirm = func(ctx context.Context, _ Confirmation) error {
			cancel()
			<-ctx.Done()
			return nil // too late for a yes
		}
	})
	ran := false
	r.offer(t, tool("run_in_terminal", func(context.Context, Invocation) Outcome {
		ran = true
		return Succeeded()
	}))
	v := r.NewConversation(ConversationOptions{})
	if _, err := v.Turn(ctx, `call:run_in_terminal {"command":"ls"}`, nil); !errors.Is(err,
		ErrCancelled) {
		t.Errorf("ended with %v, want %v", err, ErrCancelled)
	}
	if ran {
		t.Error("the command was run, want a denial")
	}
}

func TestToolPastItsTimeout(t *testing.T) {
	r := shared(t)
	over := make(chan struct{})
	defer close(over)
	r.offer(t, r.WorkspaceTool(&tools.Tool{
		Name: "hangs", Description: "A tool of the tests.", Parameters: noParameters,
		Timeout: 10 * time.Millisecond,
		Run: func(context.Context, *tools.Env, json.RawMessage) (tools.Result, error) {
			<-over
			return tools.Result{}, nil
		},
	}, tools.Env{}))
	result, e := r.mustTurn(t, "call:hangs")
	if want := []string{"hangs running", "hangs error"}; !slices.Equal(e.calls(), want) {
		t.Errorf("states %q, want %q", e.calls(), want)
	}
	if want := "Tool call failed with error: hangs did not finish within 10ms"; result.Text != want {
		t.Errorf("the model saw %q, want %q", result.Text, want)
	}
}

func TestToolThatPanics(t *testing.T) {
	r := shared(t)
	breaks := r.WorkspaceTool(&tools.Tool{
		Name: "breaks", Description: "A tool of the tests.", Parameters: noParameters,
		Run: func(context.Context, *tools.Env, json.RawMessage) (tools.Result, error) {
			panic("oops")
		},
	}, tools.Env{})
	r.offer(t, breaks, answeringTool("whole", "fine"))
	result, e := r.mustTurn(t, "call:breaks\ncall:whole")
	first, last := "Tool call failed with error: breaks broke down (oops)", "\nfine"
	if !strings.Contains(result.Text, first) || !strings.HasSuffix(result.Text, last) {
		t.Errorf("the model saw %q, want %q and at the end %q", result.Text, first, last)
	}
	if want := []string{"breaks running", "breaks error", "whole running",
		"whole completed"}; !slices.Equal(e.calls(),
		want) {
		t.Errorf("states %q, want %q", e.calls(), want)
	}
}

func TestLargeOutput(t *testing.T) {
	r := shared(t)
	big := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MB
	r.offer(t, answeringTool("big", big))
	_, e := r.mustTurn(t, "call:big")
	if got := e.call(t, "big"); got.State != Completed || got.Result != big {
		t.Errorf("%s with %d bytes, want %d", got.State, len(got.Result), len(big))
	}
	// More than that is cut, and says so.
	r.offer(t, answeringTool("big", strings.Repeat("é", 3<<20)))
	_, e = r.mustTurn(t, "call:big")
	if got := e.call(t, "big"); got.State != Completed || len(got.Result) > maxOutput+100 ||
		!strings.HasSuffix(got.Result, "[2097152 more bytes were left out]") {
		t.Errorf(
			`%s with %d bytes: %q, want State %s, at most %d and "[2097152 more bytes were left out]" at its end`,
			got.State, len(got.Result), got.Result[max(0, len(got.Result)-50):], Completed,
			maxOutput+100,
		)
	}
}

// The turn's limit of rounds is an error that callers can tell from others.
func TestTooManyRounds(t *testing.T) {
	r := newRig(t, func(o *Options, _ *cloud.Cloud) { o.MaxRounds = 2 })
	r.offer(t, answeringTool("again", "x"))
	r.cloud.SetReply(func(*scriptmodel.Request) scriptmodel.Reply {
		return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: "again"}}}
	})
	_, _, err := r.turn(t, "hello")
	if failed, ok := errors.AsType[*TurnError](err); !ok || failed.Code != CodeTooManyRounds {
		t.Errorf("ended with %v, want code %v", err, CodeTooManyRounds)
	}
}

// If the server dies during a turn, all calls get the same clear error.
func TestServerKilled(t *testing.T) {
	r := newRig(t)
	begun := make(chan struct{}, 2)
	r.offer(t, tool("slow", func(ctx context.Context, _ Invocation) Outcome {
		begun <- struct{}{}
		<-ctx.Done() // the call ends with the server
		return FailedWith(context.Cause(ctx))
	}))
	const turns = 2
	errs := make(chan error, turns)
	for range turns {
		go func() {
			_, err := r.NewConversation(ConversationOptions{}).Turn(within(t), "call:slow", nil)
			errs <- err
		}()
	}
	for range turns {
		<-begun
	}
	server, err := os.FindProcess(r.process.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if dead, ok := errors.AsType[*DeadError](err); !ok ||
			!strings.Contains(dead.How, "killed") ||
			!strings.Contains(err.Error(), "the language server ended (signal: killed") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("ended with %v, want how it ended: killed", err)
		}
	}
	for range turns {
		check(<-errs)
	}
	_, err = r.NewConversation(ConversationOptions{}).Turn(within(t), "hello", nil)
	check(err)
	_, err = r.Status(within(t))
	check(err)
	_, err = r.SetTools(within(t), nil)
	check(err)
	check(r.Err())
}

// Closing the client ends the turns under way, and they say so.
func TestCloseInMidTurn(t *testing.T) {
	r := newRig(t)
	begun := make(chan struct{})
	r.offer(t, tool("slow", func(ctx context.Context, _ Invocation) Outcome {
		close(begun)
		<-ctx.Done()
		return FailedWith(context.Cause(ctx))
	}))
	ended := make(chan error, 1)
	go func() {
		_, err := r.NewConversation(ConversationOptions{}).Turn(within(t), "call:slow", nil)
		ended <- err
	}()
	<-begun
	r.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("ended with %v, want %v", err, ErrClosed)
	}
	if !errors.Is(r.Err(), ErrClosed) {
		t.Errorf("gone because of %v, want %v", r.Err(), ErrClosed)
	}
}

// Calls to a frozen server end with their context.
func TestServerFrozen(t *testing.T) {
	r := newRig(t)
	r.mustTurn(t, "hello")
	if err := syscall.Kill(r.process.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(within(t), 10*time.Millisecond)
	defer cancel()
	if _, err := r.Status(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v, want %v", err, context.DeadlineExceeded)
	}
	// A megabyte is more than its pipe holds.
	_ = r.docs.update("file:///none", "")
	if _, err := r.Complete(ctx, "/none.go", "go", strings.Repeat("x", 1<<20),
		Position{}); err == nil {
		t.Error("a completion of a frozen server: no error, want one")
	}
	// Closing it, below, kills it in the end.
}
