//go:build runtime

package copilot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/gateway"
)

// straight is a session on the SDK alone, in the same runtime.
type straight struct {
	s    *sdk.Session
	idle chan struct{}
}

func (h *hosted) straight(b *testing.B, hooks *sdk.SessionHooks) *straight {
	b.Helper()
	p, err := h.r.r.process(h.r.ctx)
	if err != nil {
		b.Fatal(err)
	}
	d := &straight{idle: make(chan struct{}, 1)}
	cfg := &sdk.SessionConfig{
		Model: "scripted", WorkingDirectory: h.r.cwd, Streaming: new(true),
		AvailableTools: []string{"report_intent", "custom:*"},
		Provider: &sdk.ProviderConfig{Type: "openai", BaseURL: h.r.model.URL,
			APIKey: "scripted-model-key"},
		OnPermissionRequest: deferToPump, Hooks: hooks,
		Tools: []sdk.Tool{
			{Name: "say", Description: "Says it.", SkipPermission: true,
				Parameters: map[string]any{"type": "object"},
				Handler: func(inv sdk.ToolInvocation) (sdk.ToolResult, error) {
					return sdk.ToolResult{
						TextResultForLLM: string(rawJSON(inv.Arguments)), ResultType: resultSuccess,
					}, nil
				}},
		},
		OnEvent: func(e sdk.SessionEvent) {
			if _, ok := e.Data.(*rpc.SessionIdleData); ok {
				d.idle <- struct{}{}
			}
		},
	}
	if d.s, err = p.client.CreateSession(h.r.ctx, cfg); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.s.Disconnect() })
	return d
}

func (d *straight) turn(ctx context.Context, b *testing.B, text string) {
	if _, err := d.s.Send(ctx, sdk.MessageOptions{Prompt: text}); err != nil {
		b.Fatal(err)
	}
	<-d.idle
}

// BenchmarkGatewayTurn takes turns in turn: one through the gateway, one straight on
// the SDK, and one there with hooks that do nothing, as a session of the gateway's has
// them that somebody wants to be asked about. It reports medians: of each, and of what
// the gateway's takes beyond the others'.
func BenchmarkGatewayTurn(b *testing.B) {
	hooks := &sdk.SessionHooks{
		OnUserPromptSubmitted: func(
			sdk.UserPromptSubmittedHookInput, sdk.HookInvocation,
		) (*sdk.UserPromptSubmittedHookOutput, error) {
			return nil, nil
		},
		OnPreToolUse: func(sdk.PreToolUseHookInput, sdk.HookInvocation) (*sdk.PreToolUseHookOutput,
			error) {
			return nil, nil
		},
		OnAgentStop: func(sdk.AgentStopHookInput, sdk.HookInvocation) (*sdk.AgentStopHookOutput,
			error) {
			return nil, nil
		},
	}
	for name, text := range map[string]string{"text": "hello", "tool": `call:say {"x":"y"}`} {
		b.Run(name, func(b *testing.B) {
			h := newHosted(b, newRigWith(b, obey, lean))
			through := h.start("through")
			h.provide(through, "tests")
			bare, hooked := h.straight(b, nil), h.straight(b, hooks)
			ways := []func(){
				func() {
					if _, errs, end := turnOf(h.r.ctx, through, user(text)); len(errs) > 0 ||
						!errors.Is(end, gateway.ErrTurnEnded) {
						b.Fatalf("errors %q, end %v, want none and %v", errs, end,
							gateway.ErrTurnEnded)
					}
				},
				func() { bare.turn(h.r.ctx, b, text) },
				func() { hooked.turn(h.r.ctx, b, text) },
			}
			for range 5 {
				for _, way := range ways {
					way()
				}
			}
			var took [3][]float64
			var more [3][]float64
			for n := 0; b.Loop(); n++ {
				var t [3]float64
				for i := range ways {
					i = (i + n) % len(ways)
					begin := time.Now()
					ways[i]()
					t[i] = ms(time.Since(begin))
				}
				for i := range ways {
					took[i], more[i] = append(took[i], t[i]), append(more[i], t[0]-t[i])
				}
			}
			b.ReportMetric(median(took[0]), "gateway-ms")
			b.ReportMetric(median(took[1]), "sdk-ms")
			b.ReportMetric(median(took[2]), "sdk-with-hooks-ms")
			b.ReportMetric(median(more[1]), "more-ms")
			b.ReportMetric(median(more[2]), "more-than-hooks-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// parrot says the same to everybody.
func parrot(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	const chunk = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n"
	_, _ = fmt.Fprintf(
		w,
		chunk+chunk+"data: [DONE]\n\n",
		`{"role":"assistant","content":"hello yourself"}`,
		"null",
		"{}",
		`"stop"`,
	)
}

// BenchmarkSessions starts 50 sessions that each took three turns, and reports what
// each keeps of the gateway's own memory, the SDK's and a provider's included.
func BenchmarkSessions(b *testing.B) {
	const sessions = 50
	for b.Loop() {
		h := newHosted(b, newRigWith(b, obey, lean))
		// the scripted one keeps what it is sent
		model := httptest.NewServer(http.HandlerFunc(parrot))
		before := inUse()
		for n := range sessions {
			s, err := h.g.Start(
				h.r.ctx,
				gateway.StartRequest{
					Host: Kind, Model: "m", CWD: h.r.cwd, ProviderURL: model.URL + "/v1",
					ProviderKey: "scripted-model-key",
				},
			)
			if err != nil {
				b.Fatal(err)
			}
			h.provide(s, fmt.Sprintf("p%d", n))
			for range 3 {
				if _, errs, end := turnOf(h.r.ctx, s, user("hello")); len(errs) > 0 ||
					!errors.Is(end, gateway.ErrTurnEnded) {
					b.Fatalf("errors %q, end %v, want none and %v", errs, end, gateway.ErrTurnEnded)
				}
			}
		}
		b.Cleanup(model.Close)
		b.ReportMetric(float64(inUse()-before)/sessions/1024, "KiB/session")
	}
}

// inUse is the memory of live objects and of stacks.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
