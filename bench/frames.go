package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/coder/websocket"
)

// firstID is the host's first id. It is far above the ids of a gateway's requests, so that they never mix.
const firstID = 1 << 40

// toolSchema is the schema of each tool: three properties.
const toolSchema = `{"type":"object","properties":{"path":{"type":"string"},"line":{"type":"integer","minimum":1},"text":{"type":"string"}},"required":["path","line","text"]}`

var toolArgs = arguments{"internal/gateway/session.go", 128, "the quick brown fox jumps over the lazy dog"}

// toolName returns the name of tool j of provider k.
func toolName(k, j int) string { return fmt.Sprintf("t%d_%d", k, j) }

// Frames of host and provider. Both use encoding/json, as most programs do. Frames through the relay and through a
// gateway fit the same structs, so that both ends do the same work in both cases.
type (
	// arguments are the arguments of a call.
	arguments struct {
		Path string `json:"path"`
		Line int    `json:"line"`
		Text string `json:"text"`
	}
	// callFrame is what a provider receives: the gateway's tool.call, or the host's tool/call through the relay.
	callFrame struct {
		Type    string          `json:"type"`
		ID      json.RawMessage `json:"id"`
		Args    *arguments      `json:"args"`
		Params  struct{ Args *arguments }
		Active  []struct{ ID string }
		Code    string
		Message string
	}
	// resultFrame is a provider's answer. A host receives it through the relay.
	resultFrame struct {
		Type string          `json:"type"`
		ID   json.RawMessage `json:"id"`
		Data string          `json:"data"`
	}
	// answerFrame is what a host receives: the gateway's response or request, or the provider's tool.result through the
	// relay.
	answerFrame struct {
		ID     json.RawMessage
		Data   string
		Result *struct{ Data, ErrorCode, Error string }
		Error  *struct{ Message string }
		Method string
		Params struct{ Tools []struct{ Name string } }
	}
	// requestFrame is what a host sends.
	requestFrame struct {
		JSONRPC string `json:"jsonrpc"`
		ID      uint64 `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}
	callParams struct {
		SessionID string    `json:"sessionId"`
		Name      string    `json:"name"`
		Args      arguments `json:"args"`
	}
)

func (a arguments) result() string {
	return fmt.Sprintf("%s:%d: %s, and comes back", a.Path, a.Line, a.Text)
}

// readFrame reads one frame into buf, which it empties first.
func readFrame(ctx context.Context, c *websocket.Conn, buf *bytes.Buffer) error {
	_, r, err := c.Reader(ctx)
	if err != nil {
		return err
	}
	buf.Reset()
	_, err = buf.ReadFrom(r)
	return err
}

func dial(ctx context.Context, url string) (*websocket.Conn, error) {
	c, resp, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", url, err)
	}
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	c.SetReadLimit(-1)
	return c, nil
}

// untilOrphaned returns a context that ends with stdin. The driver keeps stdin open, so no process outlives the driver.
func untilOrphaned(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	return ctx
}
