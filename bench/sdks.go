package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/proof"
)

const (
	sdkToken    = "ptk-bench"
	sdkInFlight = 64
)

// sdks compares the providers of an SDK with bare clients that answer the same frames, in turn.
func sdks(ctx context.Context, o options, r *report) error {
	r.title("SDKs: a provider of the SDK, beside a bare WebSocket client that answers the same frames",
		"metric\tbare\tSDK\tratio or value\ttarget\t")
	return sdk(ctx, o, r, "Python", 4000, 150,
		[]string{"/usr/bin/python3", "bench/sdk/bare.py"}, []string{"/usr/bin/python3", "bench/sdk/provider.py"})
}

// sdk measures one SDK. perSecond is the least number of calls in a second of CPU, and start the most milliseconds
// of CPU until the provider is bound.
func sdk(
	ctx context.Context,
	o options,
	r *report,
	language string,
	perSecond, start float64,
	bare, own []string,
) error {
	g, err := newScript(ctx)
	if err != nil {
		return err
	}
	defer g.stop()
	var rtt, rate, begin series
	for range o.rounds {
		var p [2]sdkFigures
		for i, command := range [][]string{bare, own} {
			if p[i], err = g.measure(ctx, command, o.calls); err != nil {
				return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
			}
		}
		rtt.add(micros(int64(p[0].rtt)), micros(int64(p[1].rtt)))
		rate.add(p[0].rate, p[1].rate)
		begin.add(p[0].start.Seconds()*1e3, p[1].start.Seconds()*1e3)
	}
	rtt.row(r, language+": round trip p50 (us)", "%.0f", 1.25, false)
	r.row(language+": calls in a second of CPU", fmt.Sprintf("%.0f", median(rate.floor)),
		fmt.Sprintf("%.0f", median(rate.ours)), median(rate.ours), perSecond, true)
	r.row(language+": import, connect and bind (ms of CPU)", fmt.Sprintf("%.0f", median(begin.floor)),
		fmt.Sprintf("%.0f", median(begin.ours)), median(begin.ours), start, false)
	return nil
}

// sdkFigures is what one process did.
type sdkFigures struct {
	start time.Duration // its CPU time until it is bound
	rtt   time.Duration // p50 of calls one after the other
	rate  float64       // calls in a second of its CPU, with many in flight
}

// script is a gateway that only knows how to greet and call.
type script struct {
	srv   *http.Server
	url   string
	conns chan *websocket.Conn
}

func newScript(ctx context.Context) (*script, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	g := &script{url: "ws://" + ln.Addr().String(), conns: make(chan *websocket.Conn, 1)}
	accept := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, nonce, _ := proof.ParseQuestion(r.Header.Get(proof.AskHeader))
		if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			w.Header().Set(proof.AnswerHeader, proof.Answer(proof.KeyOf(sdkToken), nonce, proof.Address(at)))
		}
		if c, err := websocket.Accept(w, r, nil); err == nil {
			c.SetReadLimit(-1)
			g.conns <- c
		}
	})
	g.srv = &http.Server{Handler: accept, ReadHeaderTimeout: time.Minute}
	go func() { _ = g.srv.Serve(ln) }()
	return g, nil
}

func (g *script) stop() { _ = g.srv.Close() }

// measure starts a provider and calls it.
func (g *script) measure(ctx context.Context, command []string, calls int) (s sdkFigures, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the table names it
	cmd.Env = append(os.Environ(), "TAP_GATEWAY_URL="+g.url, "TAP_PROVIDER_TOKEN="+sdkToken)
	if err := cmd.Start(); err != nil {
		return s, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var c *websocket.Conn
	select {
	case c = <-g.conns:
	case <-ctx.Done():
		return s, errors.New("it did not connect")
	}
	defer func() { _ = c.CloseNow() }()
	if err := greet(ctx, c); err != nil {
		return s, err
	}
	if s.start, err = onCPU(cmd.Process.Pid); err != nil {
		return s, err
	}
	if s.rtt, err = sequential(ctx, c, calls); err != nil {
		return s, err
	}
	before, err := onCPU(cmd.Process.Pid)
	if err != nil {
		return s, err
	}
	if err := concurrent(ctx, c, 4*calls); err != nil {
		return s, err
	}
	after, err := onCPU(cmd.Process.Pid)
	s.rate = float64(4*calls) / (after - before).Seconds()
	return s, err
}

func write(ctx context.Context, c *websocket.Conn, text string) error {
	return c.Write(ctx, websocket.MessageText, []byte(text))
}

// greet takes a provider to a session.
func greet(ctx context.Context, c *websocket.Conn) error {
	for _, answer := range []string{
		`{"type":"sessions","active":[{"id":"s1","label":"one","cwd":"/one"}]}`,
		`{"type":"hello.ack","protocolVersion":2,"providerId":"p-1","sessionId":"s1","reconnectToken":"rt-1"}`,
	} {
		if _, _, err := c.Read(ctx); err != nil {
			return fmt.Errorf("greeting: %w", err)
		}
		if err := write(ctx, c, answer); err != nil {
			return fmt.Errorf("greeting: %w", err)
		}
	}
	return nil
}

func echoCall(id int) string {
	return fmt.Sprintf(`{"type":"tool.call","id":"0199f2a0-%012d","sessionId":"s1","tool":"echo","args":{"text":"%s"}}`,
		id, strings.Repeat("x", 100))
}

// result reads the result of a call.
func result(ctx context.Context, c *websocket.Conn) error {
	_, data, err := c.Read(ctx)
	if err != nil {
		return err
	}
	var m struct{ Type, Data string }
	if err := json.Unmarshal(data, &m); err != nil || m.Type != "tool.result" || len(m.Data) != 100 {
		return fmt.Errorf("got %.200s, want a result", data)
	}
	return nil
}

// sequential makes calls one after the other, and returns the median of their times.
func sequential(ctx context.Context, c *websocket.Conn, calls int) (time.Duration, error) {
	times := make([]time.Duration, calls)
	for i := range times {
		began := time.Now()
		if err := write(ctx, c, echoCall(i)); err != nil {
			return 0, err
		}
		if err := result(ctx, c); err != nil {
			return 0, err
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// concurrent makes calls with many in flight.
func concurrent(ctx context.Context, c *websocket.Conn, calls int) error {
	for sent, ended := 0, 0; ended < calls; {
		if sent < calls && sent-ended < sdkInFlight {
			if err := write(ctx, c, echoCall(sent)); err != nil {
				return err
			}
			sent++
			continue
		}
		if err := result(ctx, c); err != nil {
			return err
		}
		ended++
	}
	return nil
}

// onCPU returns how long the main thread of a process has run.
func onCPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat")
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0, fmt.Errorf("reading the CPU time: %q has no fields", text)
	}
	ns, err := strconv.ParseInt(fields[0], 10, 64)
	return time.Duration(ns), err
}
