package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// The entry for MCP clients: the tokens that open it, and deadlines for its answers.

// maxMCPBody bounds the body of an MCP client's request: a call with the longest arguments.
const maxMCPBody = protocol.MaxMessage + 64<<10

// requireMCP lets requests through to next that have the admin token, or the MCP token of the
// session that they name. Cookies don't count. Without next, every request gets 404 or is refused.
func (s *Server) requireMCP(next http.Handler) http.Handler {
	if next == nil {
		return s.requireAdmin(http.HandlerFunc(notFound)) // without the token it stays hidden
	}
	return s.trackHandler(func(w http.ResponseWriter, r *http.Request) {
		isAdmin, session := false, (*gateway.Session)(nil)
		isRight := func(token string) (isKnown bool) {
			if isAdmin = s.gateway.IsAdmin(token); !isAdmin {
				session, isKnown = s.gateway.MCPSession(token)
			}
			return isAdmin || isKnown
		}
		if !s.requireToken(w, r, isRight,
			"this needs Authorization: Bearer with the admin token, or "+
				"with what tapctl mcp token prints for a session that has not ended") {
			return
		}
		if isAdmin {
			s.serveMCP(w, r, next)
			return
		}
		if r.PathValue("terminal") != "" {
			fail(w, http.StatusForbidden, "UNAUTHORIZED", "a terminal needs the admin token")
			return
		}
		if id := r.PathValue("id"); id != "" && id != session.ID() {
			fail(w, http.StatusForbidden, "UNAUTHORIZED", "the token is for another session")
			return
		}
		r.SetPathValue("id", session.ID())
		s.serveMCP(w, r, next)
	})
}

// hold keeps the gateway in use until the function that it returns is called.
func (s *Server) hold() (release func()) {
	s.heldRequests.Add(1)
	return func() {
		s.recordActivity()
		s.heldRequests.Add(-1)
	}
}

// answerTime is how long the WebSocket of an MCP client stays open at a shutdown, for the answers
// to its calls.
const answerTime = 200 * time.Millisecond

// serveMCP reads a request's body and serves it. The request ends with the server, and its answer's
// parts with a reader that takes nothing for writeDeadline.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request, next http.Handler) {
	defer s.hold()()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if isUpgrade(r) {
		// The calls have ended with their sessions, but their answers may still be on their way to
		// the socket.
		defer context.AfterFunc(s.mcpContext, func() { time.AfterFunc(answerTime, cancel) })()
		next.ServeHTTP(w, r.WithContext(ctx))
		return
	}
	defer context.AfterFunc(s.mcpContext, cancel)()
	r = r.WithContext(ctx)
	if r.Body != http.NoBody {
		var body bytes.Buffer
		body.Grow(int(min(max(r.ContentLength, 0), 256<<10)) + bytes.MinRead)
		_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxMCPBody))
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			fail(w, http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "the body is too long")
			return
		}
		if err != nil {
			fail(w, http.StatusBadRequest, "INVALID_JSON", "reading the body: "+err.Error())
			return
		}
		r.Body = io.NopCloser(&body)
	}
	// The deadline of the guard is for the body: the answer may take as long as a call does.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	next.ServeHTTP(deadlineWriter{w, http.NewResponseController(w)}, r)
}

// deadlineWriter gives each write and flush writeDeadline.
type deadlineWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
}

func (w deadlineWriter) Write(p []byte) (int, error) {
	_ = w.controller.SetWriteDeadline(time.Now().Add(writeDeadline))
	n, err := w.ResponseWriter.Write(p)
	_ = w.controller.SetWriteDeadline(time.Time{})
	return n, err
}

// FlushError sends the bytes that were written.
func (w deadlineWriter) FlushError() error {
	_ = w.controller.SetWriteDeadline(time.Now().Add(writeDeadline))
	err := w.controller.Flush()
	_ = w.controller.SetWriteDeadline(time.Time{})
	return err
}

// Unwrap lets [http.ResponseController] reach the connection.
func (w deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
