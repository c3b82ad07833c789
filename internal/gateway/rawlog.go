package gateway

import (
	"context"
	"fmt"
	"time"

	"tapgw/internal/protocol"
)

// RuntimeEvent is an event of a host's runtime as it came, for who wants to see
// all of it.
type RuntimeEvent struct {
	Seq       uint64       `json:"seq"`
	TS        time.Time    `json:"ts"`
	Type      string       `json:"type"`
	ID        string       `json:"id,omitempty"`
	AgentID   string       `json:"agentId,omitempty"`   // of a sub-agent
	Ephemeral bool         `json:"ephemeral,omitempty"` // not in the runtime's own log
	Data      protocol.Raw `json:"data"`
}

// The newest events that a session keeps, and their size. Of one that is longer
// than runtimeLongest only its type is kept.
const (
	runtimeKept    = 2000
	runtimeBytes   = 512 << 10
	runtimeLongest = 64 << 10
)

func newRuntimeLog() *feed[RuntimeEvent] {
	return newFeed(runtimeKept, runtimeBytes, func(e RuntimeEvent) int { return 200 + len(e.Data) })
}

// Runtime implements [HostCalls].
func (s *Session) Runtime(e RuntimeEvent) {
	if len(e.Data) > runtimeLongest {
		e.Data = protocol.Raw(fmt.Sprintf(`{"omitted":"%d bytes"}`, len(e.Data)))
	}
	s.runtime.add(func(seq uint64) RuntimeEvent {
		e.Seq = seq
		return e
	})
}

// RuntimeEvents returns the runtime's events after a number, and the number to
// ask with next.
func (s *Session) RuntimeEvents(after uint64) ([]RuntimeEvent, uint64) { return s.runtime.after(after) }

// WaitRuntimeEvents waits for an event of the runtime after a number.
func (s *Session) WaitRuntimeEvents(ctx context.Context, after uint64) error {
	return s.runtime.wait(ctx, after)
}

// CheckRuntimeEvents refuses, with INVALID_STATE, where there can be none: only
// some hosts tell what their runtime does.
func (s *Session) CheckRuntimeEvents() error {
	if s.info.RuntimeEvents {
		return nil
	}
	return errorf(protocol.CodeInvalidState, "sessions of host %s have no runtime of which events could be seen; what happens in them is in the timeline", s.info.Kind)
}
