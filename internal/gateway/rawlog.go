package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Limits of the runtime events that a session holds. Of an event over
// maxRuntimeEventBytes only the type stays.
const (
	maxRuntimeEvents     = 2000
	maxRuntimeBytes      = 512 << 10
	maxRuntimeEventBytes = 64 << 10
)

func newRuntimeLog() *buffer[adminapi.RuntimeEvent] {
	return newBuffer(maxRuntimeEvents, maxRuntimeBytes, func(e adminapi.RuntimeEvent) int {
		return 200 + len(e.Data)
	})
}

// RuntimeEvent implements [HostCalls]. It sets Seq, and replaces Data of more than 64 KiB
// by an object that says how long it was. The session keeps the newest 2000 events, 512 KiB
// at most.
func (s *Session) RuntimeEvent(e adminapi.RuntimeEvent) {
	if len(e.Data) > maxRuntimeEventBytes {
		e.Data = json.RawMessage(fmt.Sprintf(`{"omitted":"%d bytes"}`, len(e.Data)))
	}
	s.runtime.add(func(seq uint64) adminapi.RuntimeEvent {
		e.Seq = seq
		return e
	})
}

// RuntimeEvents returns the runtime's events after a cursor, oldest first, and the cursor
// for the next read; 0 means from the oldest that the session has. Events that left the
// buffer before are missing without a sign.
func (s *Session) RuntimeEvents(after uint64) ([]adminapi.RuntimeEvent, uint64) {
	events, first := s.runtime.next(after, maxRuntimeEvents, math.MaxInt)
	return events, first + uint64(len(events)) - 1
}

// WaitRuntimeEvents waits until there is an event of the runtime after a cursor. The error is
// [ErrSessionEnded] if the session ends first, or that of ctx.
func (s *Session) WaitRuntimeEvents(ctx context.Context, after uint64) error {
	return s.runtime.wait(ctx, after)
}

// CheckRuntimeEvents returns an INVALID_STATE error if the session's host does not
// report the events of its runtime ([HostInfo].RuntimeEvents).
func (s *Session) CheckRuntimeEvents() error {
	if s.info.RuntimeEvents {
		return nil
	}
	return errorf(protocol.CodeInvalidState,
		"sessions of host %s have no runtime of which events could be seen; what happens in them "+
			"is in the timeline",
		s.info.Kind)
}
