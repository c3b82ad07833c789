// Command held runs a command while a stranger holds the gateway's default port, and
// fails if the command does, or if the stranger was sent a token:
//
//	go run ./test/held KIND COMMAND [ARGUMENT…]
//
// KIND is gateway (another user's, at both loopbacks), squatter (somebody who takes
// every connection, at [::1] alone), web (a web server that has a page for every
// request) or silent (a listener that says nothing).
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
	heard := &secrets{}
	end, err := hold(kind, heard)
	if err != nil {
		return fmt.Errorf("holding port %s: %w", port, err)
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec // that is what we are for
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	end()
	return errors.Join(err, heard.err())
}

// hold takes the port until end is called.
func hold(kind string, heard *secrets) (end func(), err error) {
	switch kind {
	case "gateway":
		return holdGateway()
	case "squatter":
		return listen(bothLoopbacks[1:], heard, web(heard.takeAll))
	case "web":
		return listen(bothLoopbacks, heard, web(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!doctype html><p>It works!")
		}))
	case "silent":
		return listen(bothLoopbacks, heard, swallow)
	}
	return nil, fmt.Errorf("%q is no kind of stranger", kind)
}

func web(h http.HandlerFunc) func(net.Listener) error {
	return (&http.Server{Handler: h, ReadHeaderTimeout: time.Minute}).Serve
}

// holdGateway runs a gateway that shares no token with anybody.
func holdGateway() (end func(), err error) {
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

func listen(addresses []string, heard *secrets, serve func(net.Listener) error) (end func(), err error) {
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

// takeAll lets every provider in and listens to it: frames of clients are masked, so
// that no token is seen in their bytes.
func (s *secrets) takeAll(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	for err == nil {
		var text []byte
		_, text, err = ws.Read(r.Context())
		s.note(text)
	}
}

// swallow reads all and says nothing.
func swallow(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
}

// listener hears what its connections are sent.
type listener struct {
	net.Listener
	heard *secrets
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
	heard *secrets
	last  []byte // the end of what was read: a token may come in two parts
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.last = append(c.last, p[:n]...)
	c.heard.note(c.last)
	c.last = bytes.Clone(c.last[max(len(c.last)-64, 0):])
	return n, err
}

// token matches those that gateways make.
var token = regexp.MustCompile(`(ptk|adm|tok)-[0-9a-f]{32}`)

// secrets are the tokens that strangers were sent.
type secrets struct {
	mu    sync.Mutex
	found map[string]bool
}

func (s *secrets) note(text []byte) {
	for _, t := range token.FindAll(text, -1) {
		s.mu.Lock()
		if s.found == nil {
			s.found = map[string]bool{}
		}
		s.found[string(t[:3])] = true
		s.mu.Unlock()
	}
}

func (s *secrets) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.found) == 0 {
		return nil
	}
	return fmt.Errorf("it was sent tokens of these kinds: %v", s.found)
}
