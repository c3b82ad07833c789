// Command held runs a command while another program listens on the gateway's default port. It fails
// if the command fails, or if that program was sent a token:
//
//	go run ./test/held KIND COMMAND [ARGUMENT…]
//
// KIND is what listens: gateway (another user's gateway, on both loopbacks), squatter (accepts
// every WebSocket, on [::1] only), web (a web server with a page for every request) or silent
// (accepts connections and never answers).
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/gateway"
	"tapgw/internal/server"
)

const port = "9400"

var bothLoopbacks = []string{"127.0.0.1:" + port, "[::1]:" + port}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: held gateway|squatter|web|silent COMMAND [ARGUMENT…]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "held: beside a %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func run(kind string, command []string) error {
	heard := &heardTokens{}
	end, err := occupy(kind, heard)
	if err != nil {
		return fmt.Errorf("listening on port %s: %w", port, err)
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec // running it is the purpose
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	end()
	return errors.Join(err, heard.err())
}

// occupy listens on the port, as kind says, until end is called.
func occupy(kind string, heard *heardTokens) (end func(), err error) {
	switch kind {
	case "gateway":
		return serveGateway()
	case "squatter":
		return listen(bothLoopbacks[1:], heard, web(heard.acceptAll))
	case "web":
		return listen(bothLoopbacks, heard, web(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!doctype html><p>It works!")
		}))
	case "silent":
		return listen(bothLoopbacks, heard, neverAnswer)
	}
	return nil, fmt.Errorf("%q is not one of gateway, squatter, web and silent", kind)
}

func web(h http.HandlerFunc) func(net.Listener) error {
	return (&http.Server{Handler: h, ReadHeaderTimeout: time.Minute}).Serve
}

// serveGateway runs a gateway with tokens of its own.
func serveGateway() (end func(), err error) {
	s := server.New(server.Options{Gateway: gateway.New(gateway.Options{})})
	if err := s.Listen(bothLoopbacks[0]); err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
		<-served //nolint:errcheck // it was shut down
	}, nil
}

func listen(
	addresses []string, heard *heardTokens, serve func(net.Listener) error,
) (end func(), err error) {
	var serving sync.WaitGroup
	var listeners []net.Listener
	end = func() {
		for _, l := range listeners {
			_ = l.Close()
		}
		serving.Wait()
	}
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			end()
			return nil, err
		}
		listeners = append(listeners, l)
		serving.Go(func() { _ = serve(listener{l, heard}) })
	}
	return end, nil
}

// acceptAll accepts a WebSocket and reads its frames. They are masked, so listener can't find
// tokens in their bytes.
func (h *heardTokens) acceptAll(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	for err == nil {
		var text []byte
		_, text, err = ws.Read(r.Context())
		h.note(text)
	}
}

// neverAnswer reads all connections and never answers.
func neverAnswer(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
}

// listener looks for tokens in the data that its connections receive.
type listener struct {
	net.Listener
	heard *heardTokens
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, heard: l.heard}, nil
}

type conn struct {
	net.Conn
	heard *heardTokens
	last  []byte // the end of the earlier data, since a token may come in two parts
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.last = append(c.last, p[:n]...)
	c.heard.note(c.last)
	c.last = bytes.Clone(c.last[max(len(c.last)-64, 0):])
	return n, err
}

// token matches the tokens that gateways make.
var token = regexp.MustCompile(`(ptk|adm|tok)-[0-9a-f]{32}`)

// heardTokens are the kinds of tokens that were received.
type heardTokens struct {
	mu    sync.Mutex
	kinds map[string]bool // ptk, adm or tok
}

func (h *heardTokens) note(text []byte) {
	for _, t := range token.FindAll(text, -1) {
		h.mu.Lock()
		if h.kinds == nil {
			h.kinds = map[string]bool{}
		}
		h.kinds[string(t[:3])] = true
		h.mu.Unlock()
	}
}

func (h *heardTokens) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.kinds) == 0 {
		return nil
	}
	return fmt.Errorf("it was sent tokens of these kinds: %v", h.kinds)
}
