package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"tapgw/internal/jsonrpc"
)

// runTap runs a program in whose place it stands: the JSON-RPC on stdin and stdout goes through it. For each call of a
// tool it appends to a file how many nanoseconds passed from the CLI's request to the answer. That is what gateway and
// provider take, without what the CLI does before and after. It is measured in the same way on a CLI that the gateway
// runs and on one in a terminal.
func runTap(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("tap: want FILE PROGRAM ARGS")
	}
	log, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, args[1], args[2:]...) //nolint:gosec // the driver names it
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t := tap{asked: map[string]time.Time{}, log: log}
	go func() { // it ends with this process
		_ = t.relay(in, os.Stdin)
		_ = in.Close()
	}()
	err = t.relay(os.Stdout, out)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, cmd.Wait())
}

// tap sees the messages of both directions.
type tap struct {
	mu    sync.Mutex // guards the fields that follow
	asked map[string]time.Time
	log   io.Writer
}

// relay hands messages on until there are no more.
func (t *tap) relay(to io.Writer, from io.Reader) error {
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		data, err := jsonrpc.ReadFrame(in, 64<<20)
		if err != nil {
			return err
		}
		if err := t.see(data, time.Now()); err != nil {
			return err
		}
		if _, err := to.Write(jsonrpc.AppendFrame(nil, data)); err != nil {
			return err
		}
	}
}

// see notes the request of a call, and how long its answer took.
func (t *tap) see(data []byte, now time.Time) error {
	asks := bytes.Contains(data, []byte(`"external_tool.requested"`))
	if !asks && !bytes.Contains(data, []byte(`"session.tools.handlePendingToolCall"`)) {
		return nil
	}
	var m struct {
		Params struct {
			RequestID string `json:"requestId"`
			Event     struct {
				Type string `json:"type"`
				Data struct {
					RequestID string `json:"requestId"`
				} `json:"data"`
			} `json:"event"`
		} `json:"params"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.Params.Event.Type == "external_tool.requested" {
		t.asked[m.Params.Event.Data.RequestID] = now
	} else if asked, ok := t.asked[m.Params.RequestID]; ok {
		delete(t.asked, m.Params.RequestID)
		_, err := fmt.Fprintln(t.log, now.Sub(asked).Nanoseconds())
		return err
	}
	return nil
}

// tapped reads what a tap has noted since the last time.
type tapped struct {
	path string
	read int64
}

// round returns the median of a round's calls in milliseconds.
func (t *tapped) round(want int) (float64, error) {
	data, err := os.ReadFile(t.path)
	if err != nil {
		return 0, err
	}
	var took []time.Duration
	for line := range strings.Lines(string(data[t.read:])) {
		ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", t.path, err)
		}
		took = append(took, time.Duration(ns))
	}
	t.read = int64(len(data))
	if len(took) != want {
		return 0, fmt.Errorf("%s has %d calls of a round, want %d", t.path, len(took), want)
	}
	p50, _ := quantiles(took)
	return p50, nil
}
