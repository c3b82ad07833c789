package copilot

import (
	"context"
	"time"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
)

// Lines that the gateway writes into the session's log in the runtime.

// logTimeout bounds how long one line for the session's timeline may take.
const logTimeout = 5 * time.Second

// line is one line for the session's timeline in the runtime.
type line struct {
	level   adminapi.LogLevel
	message string
}

// logType marks the lines that we write into the runtime's timeline. They come back as events and
// must not be taken for the runtime's own lines.
const logType = "tapgw"

// errorPrefix stands before a line of level error, because the runtime has no such level for our
// lines.
const errorPrefix = "Error: "

// Log implements [gateway.Host].
func (s *session) Log(level adminapi.LogLevel, message string) {
	s.lines.push(line{level, message})
}

// note shows a line of this package in the gateway's timeline and in the runtime's.
func (s *session) note(level adminapi.LogLevel, message string) {
	s.log.Info("timeline", "level", level, "message", message)
	if chans.IsClosed(s.ready) { // else the gateway does not know the session yet
		s.calls.Note(level, message)
	}
	s.Log(level, message)
}

// flushLines waits until the queued lines reach the runtime, if the runtime is there.
func (s *session) flushLines(ctx context.Context) {
	s.lines.close()
	s.mu.Lock()
	up := s.conn != nil
	s.mu.Unlock()
	if !up || !chans.IsClosed(s.ready) { // the logger has not started
		return
	}
	select {
	case <-s.logged:
	case <-ctx.Done():
	}
}

// logger writes the lines, so that no other goroutine waits for the runtime.
func (s *session) logger() {
	defer close(s.logged)
	for {
		lines, ok := s.lines.receiveAll()
		if !ok {
			return
		}
		for _, l := range lines {
			s.write(l)
		}
	}
}

func (s *session) write(l line) {
	ctx, cancel := context.WithTimeout(s.ctx, logTimeout)
	defer cancel()
	c, err := s.waitConn(ctx)
	if err != nil {
		return
	}
	// A line of level error would be reported as an error of the session.
	level, typ := rpc.SessionLogLevelInfo, logType
	switch l.level {
	case adminapi.LogWarning:
		level = rpc.SessionLogLevelWarning
	case adminapi.LogError:
		level = rpc.SessionLogLevelWarning
		l.message = errorPrefix + l.message
	}
	err = execute(ctx, c.process, logTimeout, func(ctx context.Context) error {
		_, err := c.sdk.RPC.Log(ctx, &rpc.LogRequest{Message: l.message, Level: &level, Type: &typ})
		return err
	})
	if err != nil {
		s.log.Debug("a timeline line did not reach the runtime", "error", err)
	}
}
