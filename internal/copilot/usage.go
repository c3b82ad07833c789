package copilot

import (
	"cmp"
	"time"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/gateway"
)

// nanoCredits is how many of the runtime's smallest units make one AI credit.
const nanoCredits = 1e9

// called counts a call of the model that was answered.
func (t *turn) called(d *rpc.AssistantUsageData) {
	c := gateway.ModelCall{
		Model: d.Model, Prompt: t.prompt, Duration: time.Duration(number(d.Duration)) * time.Millisecond,
		Tokens: gateway.Tokens{
			Input: number(d.InputTokens), Output: number(d.OutputTokens), Reasoning: number(d.ReasoningTokens),
			CacheRead: number(d.CacheReadTokens), CacheWrite: number(d.CacheWriteTokens),
		},
	}
	if d.Cost != nil {
		c.Cost = *d.Cost
	}
	if u := d.CopilotUsage; u != nil {
		c.Credits = u.TotalNanoAiu / nanoCredits
	}
	t.s.calls.Used(c)
}

// failed counts a call of the model that failed.
func (t *turn) failed(d *rpc.ModelCallFailureData) {
	t.s.calls.Used(gateway.ModelCall{
		Model: deref(d.Model), Prompt: t.prompt, Failed: true, Duration: time.Duration(number(d.DurationMs)) * time.Millisecond,
	})
}

// compacted counts the call that a compaction took, of which no other event tells.
func (t *turn) compacted(d *rpc.SessionCompactionCompleteData) {
	u := d.CompactionTokensUsed
	if u == nil {
		return
	}
	c := gateway.ModelCall{
		Model: cmp.Or(deref(u.Model), deref(d.BehaviorModelID)), Prompt: t.prompt, Failed: !d.Success,
		Duration: time.Duration(number(u.Duration)) * time.Millisecond,
		Tokens: gateway.Tokens{
			Input: number(u.InputTokens), Output: number(u.OutputTokens), CacheRead: number(u.CacheReadTokens), CacheWrite: number(u.CacheWriteTokens),
		},
	}
	if u.CopilotUsage != nil {
		c.Credits = u.CopilotUsage.TotalNanoAiu / nanoCredits
	}
	t.s.calls.Used(c)
}
