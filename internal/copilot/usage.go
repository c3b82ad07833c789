package copilot

import (
	"cmp"
	"time"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// nanoCredits is how many of the runtime's smallest units are one AI credit.
const nanoCredits = 1e9

// countModelCall reports the tokens, cost and time of an answered model call.
func (t *tracker) countModelCall(d *rpc.AssistantUsageData) {
	c := gateway.ModelCall{
		Model: d.Model, Prompt: t.prompt, Cost: deref(d.Cost),
		Duration: time.Duration(deref(d.Duration)) * time.Millisecond,
		Tokens: adminapi.Tokens{
			Input: deref(d.InputTokens), Output: deref(d.OutputTokens),
			Reasoning: deref(d.ReasoningTokens), CacheRead: deref(d.CacheReadTokens),
			CacheWrite: deref(d.CacheWriteTokens),
		},
	}
	if u := d.CopilotUsage; u != nil {
		c.Credits = u.TotalNanoAiu / nanoCredits
	}
	t.s.calls.CountModelCall(c)
}

// countFailedCall reports a model call that failed.
func (t *tracker) countFailedCall(d *rpc.ModelCallFailureData) {
	t.s.calls.CountModelCall(gateway.ModelCall{
		Model: deref(d.Model), Prompt: t.prompt, Failed: true,
		Duration: time.Duration(deref(d.DurationMs)) * time.Millisecond,
	})
}

// countCompaction reports the model call of a compaction, for which there is no other event.
func (t *tracker) countCompaction(d *rpc.SessionCompactionCompleteData) {
	u := d.CompactionTokensUsed
	if u == nil {
		return
	}
	c := gateway.ModelCall{
		Model: cmp.Or(deref(u.Model), deref(d.BehaviorModelID)), Prompt: t.prompt,
		Failed:   !d.Success,
		Duration: time.Duration(deref(u.Duration)) * time.Millisecond,
		Tokens: adminapi.Tokens{
			Input: deref(u.InputTokens), Output: deref(u.OutputTokens),
			CacheRead: deref(u.CacheReadTokens), CacheWrite: deref(u.CacheWriteTokens),
		},
	}
	if u.CopilotUsage != nil {
		c.Credits = u.CopilotUsage.TotalNanoAiu / nanoCredits
	}
	t.s.calls.CountModelCall(c)
}
