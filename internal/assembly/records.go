package assembly

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/records"
	"tapgw/internal/visible"
)

// recordOptions returns the options for this gateway's records.
func (p *Process) recordOptions(c configs.Config) records.Options {
	return records.Options{
		Dir: p.state.Records(), Off: !c.Records.Enabled, MaxAge: c.Records.MaxAge,
		MaxBytes: int64(c.Records.MaxBytes),
		FaultsChanged: func() {
			p.log.Warn("records", "fault", p.records.Faults())
			p.gateway.Touch()
		},
	}
}

// Limits of the records of requests that make no event. Such requests need no secret, so any
// program may send many of them.
const (
	webhookBurst = 20
	webhookEvery = 10 * time.Second // the pause before another record
)

// webhookRecords reports requests to webhooks that make no event. A flood of them leaves few
// records.
type webhookRecords struct {
	record func(adminapi.Record)

	mu      sync.Mutex // guards the fields below
	limit   *rate.Limiter
	leftOut int // requests since the last record
}

// add reports a request that was answered with a status and a line.
func (w *webhookRecords) add(name string, status int, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limit == nil {
		w.limit = rate.NewLimiter(rate.Every(webhookEvery), webhookBurst)
	}
	if !w.limit.Allow() {
		w.leftOut++
		return
	}
	if w.leftOut > 0 {
		message += fmt.Sprintf(" (%s before it have no record)",
			visible.Count(w.leftOut, "request"))
		w.leftOut = 0
	}
	outcome := adminapi.OutcomeIgnored
	if status >= http.StatusBadRequest {
		outcome = adminapi.OutcomeRefused
	}
	w.record(adminapi.Record{TS: time.Now(), Kind: adminapi.RecordWebhook,
		Provider: protocol.NormalName(name), Outcome: outcome, Code: strconv.Itoa(status),
		Reason: message})
}
