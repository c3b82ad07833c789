package server

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"tapgw/internal/protocol"
)

// terminalPath is where `tapgw terminal` hands over the pipe that a terminal gave its extension: a
// WebSocket whose binary messages are the bytes of the pipe. The query says which terminal it is:
// session, pid and cwd, and with had, repeated, which tools it has had from other gateways.
const terminalPath = "/terminal"

// maxPart bounds a WebSocket message with a part of the pipe, in bytes.
const maxPart = 1 << 20

// serveTerminal serves one terminal until its pipe or its session ends. `tapgw terminal` comes back
// then. A session that somebody has stopped can't join until something happens in its terminal.
func (s *Server) serveTerminal(w http.ResponseWriter, r *http.Request) {
	if !s.requireToken(w, r, s.gateway.IsAdmin,
		"this needs Authorization: Bearer with the admin token, from the .admin-token file") {
		return
	}
	if s.o.Terminals == nil {
		notFound(w, r)
		return
	}
	if !requireUpgrade(w, r, "terminals connect by WebSocket") {
		return
	}
	query := r.URL.Query()
	who := TerminalHello{Session: query.Get("session"), CWD: query.Get("cwd"), Had: query["had"]}
	if pid := query.Get("pid"); pid != "" {
		var err error
		if who.PID, err = strconv.Atoi(pid); err != nil {
			fail(w, http.StatusBadRequest, "INVALID_JSON", "pid: is not a number")
			return
		}
	}
	ws, err := websocket.Accept(w, r,
		&websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(protocol.MaxFrame)
	defer s.hold()()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	conn := websocket.NetConn(ctx, ws, websocket.MessageBinary)
	// Whoever has the pipe may close it, while the WebSocket stays open for the code.
	in, fill := io.Pipe()
	var reader sync.WaitGroup
	reader.Go(func() {
		_, err := io.Copy(fill, conn)
		_ = fill.CloseWithError(cmp.Or(err, io.EOF))
	})
	err = s.o.Terminals.Serve(ctx, who, terminalPipe{in, conn})
	_ = in.Close()
	switch {
	case s.draining.Load():
		_ = ws.Close(websocket.StatusGoingAway, "the gateway is shutting down")
	case err != nil:
		reason := strings.ToValidUTF8(err.Error(), "?")
		s.log.Info("a terminal can't join", "session", who.Session, "error", err)
		_ = ws.Close(websocket.StatusTryAgainLater, reason[:min(len(reason), maxCloseReason)])
	default:
		_ = ws.Close(websocket.StatusNormalClosure, "the session has ended")
	}
	reader.Wait()
}

// terminalPipe is the pipe of a terminal. Close ends its readers, and sends nothing.
type terminalPipe struct {
	*io.PipeReader
	to io.Writer
}

// Write divides bytes that are too large for one message.
func (p terminalPipe) Write(b []byte) (written int, err error) {
	for part := range slices.Chunk(b, maxPart) {
		n, err := p.to.Write(part)
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}
