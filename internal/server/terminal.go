package server

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"tapgw/internal/adminapi"
	"tapgw/internal/lentpipe"
	"tapgw/internal/protocol"
)

// terminalPath is where `tapgw terminal` hands over the pipe that a terminal gave its extension: a WebSocket whose
// binary messages are the bytes of the pipe. The query says which terminal it is: session, pid and cwd,
// and with had, repeated, which tools it has had from other gateways.
//
// With [lentpipe.Param] it offers the pipe itself. If the gateway takes it, the WebSocket brings only what the gateway
// may not write to the pipe by itself. What comes back is empty: the first message says that the gateway may begin,
// each other one that a message is written.
const terminalPath = "/terminal"

// maxPart bounds a WebSocket message with a part of the pipe, in bytes.
const maxPart = 1 << 20

// serveTerminal serves one terminal until its pipe or its session ends. `tapgw terminal` comes back then. A session
// that somebody has stopped can't join until something happens in its terminal.
func (s *Server) serveTerminal(w http.ResponseWriter, r *http.Request) {
	token, ok := adminapi.BearerToken(r.Header.Get("Authorization"))
	switch {
	case ok && s.gateway.IsAdmin(token):
		prove(r)
	case ok && s.countAuthFailure(r):
		failTooMany(w)
		return
	default:
		w.Header().Set("WWW-Authenticate", `Bearer realm="tapgw"`)
		fail(w, http.StatusUnauthorized, "AUTH_FAILED",
			"this needs Authorization: Bearer with the admin token, from the .admin-token file")
		return
	}
	switch {
	case s.terminals == nil:
		notFound(w, r)
		return
	case !isUpgrade(r):
		w.Header().Set("Upgrade", "websocket")
		fail(w, http.StatusUpgradeRequired, "INVALID_STATE", "terminals connect by WebSocket")
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
	var lent *lentPipe
	if text := query.Get(lentpipe.Param); text != "" {
		var err error
		if lent, err = borrow(text); err != nil {
			s.log.Info("the pipe of a terminal can't be taken: what passes goes through tapgw terminal",
				"session", who.Session, "error", err)
		} else {
			defer func() { _ = lent.Close() }()
			w.Header().Set(lentpipe.Header, lentpipe.Taken)
		}
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(protocol.MaxFrame)
	defer s.hold()()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	var pipe io.ReadWriteCloser
	var reader sync.WaitGroup
	if lent != nil {
		lent.ctx, lent.ws = ctx, ws
		reader.Go(lent.listen)
		pipe = lent
	} else {
		conn := websocket.NetConn(ctx, ws, websocket.MessageBinary)
		// Whoever has the pipe may close it, while the WebSocket stays open for the code.
		in, fill := io.Pipe()
		reader.Go(func() {
			_, err := io.Copy(fill, conn)
			_ = fill.CloseWithError(cmp.Or(err, io.EOF))
		})
		pipe = terminalPipe{in, conn}
	}
	err = s.terminals.Serve(ctx, who, pipe)
	_ = pipe.Close()
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

// terminalPipe is the pipe of a terminal. Close ends what reads from it, and sends nothing.
type terminalPipe struct {
	*io.PipeReader
	to io.Writer
}

// Write divides what is too large for a message.
func (p terminalPipe) Write(b []byte) (written int, err error) {
	for part := range slices.Chunk(b, maxPart) {
		n, err := p.to.Write(part)
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}

// lentPipe is the pipe of a terminal that the gateway has taken. Its owner stays at the other end of the WebSocket.
type lentPipe struct {
	*lentpipe.Borrowed
	ctx      context.Context //nolint:containedctx // ends with the connection
	ws       *websocket.Conn
	answered chan struct{}
}

func borrow(text string) (*lentPipe, error) {
	ends, err := lentpipe.ParseEnds(text)
	if err != nil {
		return nil, err
	}
	p := &lentPipe{answered: make(chan struct{}, 1)}
	if p.Borrowed, err = lentpipe.Borrow(ends, p.hand); err != nil {
		return nil, err
	}
	return p, nil
}

// hand has the owner write a message.
func (p *lentPipe) hand(message []byte) error {
	for part := range slices.Chunk(message, maxPart) {
		if err := p.ws.Write(p.ctx, websocket.MessageBinary, part); err != nil {
			return err
		}
	}
	select {
	case <-p.answered:
		return nil
	case <-p.Closed(): // the owner may wait for a CLI that is frozen
		return os.ErrClosed
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// listen reads what the owner answers, until it is gone. Then nobody reads the pipe.
func (p *lentPipe) listen() {
	defer func() { _ = p.Close() }()
	for isFirst := true; ; isFirst = false {
		if _, _, err := p.ws.Read(p.ctx); err != nil {
			return
		}
		if isFirst {
			p.Begin()
			continue
		}
		select {
		case p.answered <- struct{}{}:
		default:
			return // nothing was asked
		}
	}
}
