package assembly

import (
	"context"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/evidence"
	"tapgw/internal/goals"
	"tapgw/internal/records"
)

// newGoals makes the goals of this gateway's sessions. They go on only once the gateway is open.
func (p *Process) newGoals() *goals.Set {
	return goals.New(goals.Options{
		Gateway: p.gateway, Dial: p.dialOwn, Dir: p.state.Goals(),
		Calls: recordedCalls(p.records), Record: p.records.Record, Log: p.log,
	})
}

// recordedCalls returns a function that finds calls in the records.
func recordedCalls(l *records.Log) evidence.Calls {
	return func(ctx context.Context, session string, since time.Time) ([]evidence.Call, error) {
		found, err := l.Calls(ctx, session, since)
		calls := make([]evidence.Call, len(found))
		for i, r := range found {
			calls[i] = evidence.Call{Tool: r.Tool, Command: r.Command, ExitCode: r.ExitCode,
				Failed: r.Outcome == adminapi.OutcomeFailed, Reason: r.Reason}
		}
		return calls, err
	}
}
