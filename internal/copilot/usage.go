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
		Model: d.Model, Prompt: t.prompt, Duration: time.Duration(int64OrZero(d.Duration)) * time.Millisecond,
		Tokens: adminapi.Tokens{
			Input: int64OrZero(
				d.InputTokens,
			), Output: int64OrZero(d.OutputTokens), Reasoning: int64OrZero(d.ReasoningTokens),
			CacheRead: int64OrZero(d.CacheReadTokens), CacheWrite: int64OrZero(d.CacheWriteTokens),
		},
	}
	if d.Cost != nil {
		c.Cost = *d.Cost
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
		Duration: time.Duration(int64OrZero(d.DurationMs)) * time.Millisecond,
	})
}

// countCompaction reports the model call of a compaction, for which there is no other event.
func (t *tracker) countCompaction(d *rpc.SessionCompactionCompleteData) {
	u := d.CompactionTokensUsed
	if u == nil {
		return
	}
	c := gateway.ModelCall{
		Model: cmp.Or(deref(u.Model), deref(d.BehaviorModelID)), Prompt: t.prompt, Failed: !d.Success,
		Duration: time.Duration(int64OrZero(u.Duration)) * time.Millisecond,
		Tokens: adminapi.Tokens{
			Input: int64OrZero(u.InputTokens), Output: int64OrZero(u.OutputTokens),
			CacheRead: int64OrZero(u.CacheReadTokens), CacheWrite: int64OrZero(u.CacheWriteTokens),
		},
	}
	if u.CopilotUsage != nil {
		c.Credits = u.CopilotUsage.TotalNanoAiu / nanoCredits
	}
	t.s.calls.CountModelCall(c)
}
