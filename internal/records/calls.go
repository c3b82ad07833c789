package records

import (
	"context"
	"errors"
	"time"

	"tapgw/internal/adminapi"
)

// Calls returns the records of a session's calls that ended after a time, at most [MaxFound] of the
// newest, oldest first, with those of this process so far. A command that went on in the background
// has two: one without an exit code, and one with it when it ended. The error is that of reading,
// that of ctx, or that records are off.
func (l *Log) Calls(
	ctx context.Context, session string, since time.Time,
) ([]adminapi.Record, error) {
	l.mu.Lock()
	isOff := l.isOff
	l.mu.Unlock()
	if isOff {
		return nil, errors.New("records are off: enable them in [records] of tapgw.toml")
	}
	found, err := l.Find(ctx, Query{Kind: adminapi.RecordCall, Session: session, Since: since})
	return found.Records, err
}
