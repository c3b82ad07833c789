package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"

	"github.com/coder/websocket"

	"tapgw/internal/protocol"
)

// provider is one connection of a provider. At a gateway it authenticates and sends hello. It answers each frame
// with an id by a tool.result, so that it also works behind the relay.
type provider struct {
	name  string
	token string
	tools int // how many
	index int
	rules []protocol.Rule
	// bound is called at hello.ack; it may be nil.
	bound func()
	// said is called just before hello is sent; it may be nil.
	said func()

	greeted bool
}

func (p *provider) hello(session string) []byte {
	type tool struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	tools := make([]tool, p.tools)
	for j := range tools {
		tools[j] = tool{toolName(p.index, j), "Answers with a line of a file.", json.RawMessage(toolSchema)}
	}
	m := map[string]any{
		"type": "hello", "name": p.name, "protocolVersion": 2, "session": session, "tools": tools,
	}
	if len(p.rules) > 0 {
		m["hooks"] = map[string]any{"onPreToolUse": p.rules}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and a constant
	}
	return b
}

// connect dials and authenticates.
func (p *provider) connect(ctx context.Context, url string) (*websocket.Conn, error) {
	c, err := dial(ctx, url)
	if err != nil {
		return nil, err
	}
	auth := fmt.Appendf(nil, `{"type":"auth","token":%q}`, p.token)
	if err := c.Write(ctx, websocket.MessageText, auth); err != nil {
		return nil, fmt.Errorf("authenticating: %w", err)
	}
	return c, nil
}

// serve answers frames until the connection ends.
func (p *provider) serve(ctx context.Context, c *websocket.Conn) error {
	defer func() { _ = c.CloseNow() }()
	var in bytes.Buffer
	for {
		if err := readFrame(ctx, c, &in); err != nil {
			return err
		}
		var m callFrame
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			return fmt.Errorf("reading a frame: %w", err)
		}
		answer, err := p.answer(&m)
		if err != nil {
			return err
		}
		if answer == nil {
			continue
		}
		if err := c.Write(ctx, websocket.MessageText, answer); err != nil {
			return err
		}
	}
}

// answer returns the answer to a frame, or nil if there is none.
func (p *provider) answer(m *callFrame) ([]byte, error) {
	switch m.Type {
	case "sessions", "sessions.updated":
		if len(m.Active) == 0 || p.greeted {
			return nil, nil
		}
		p.greeted = true
		hello := p.hello(m.Active[0].ID)
		if p.said != nil {
			p.said()
		}
		return hello, nil
	case "hello.ack":
		if p.bound != nil {
			p.bound()
		}
	case "error":
		return nil, fmt.Errorf("provider %s: %s: %s", p.name, m.Code, m.Message)
	}
	if m.ID == nil {
		return nil, nil
	}
	args := m.Args
	if args == nil {
		args = m.Params.Args
	}
	if args == nil {
		args = &arguments{} // a host's request that is no call
	}
	return json.Marshal(resultFrame{"tool.result", m.ID, args.result()})
}

// runProvider serves -n connections, and prints a line when all are connected.
func runProvider(ctx context.Context, args []string) error {
	ctx = untilOrphaned(ctx)
	flags := flag.NewFlagSet("provider", flag.ContinueOnError)
	url := flags.String("url", "", "")
	token := flags.String("token", "", "")
	n := flags.Int("n", 1, "")
	tools := flags.Int("tools", 1, "")
	hookRules := flags.Int("rules", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ended := make(chan error, *n)
	for k := range *n {
		p := &provider{name: fmt.Sprintf("p%d", k), token: *token, tools: *tools, index: k, rules: rules(*hookRules)}
		c, err := p.connect(ctx, *url)
		if err != nil {
			return err
		}
		go func() { ended <- p.serve(ctx, c) }()
	}
	fmt.Println("connected")
	// The process ends when the first connection ends.
	if err := <-ended; ctx.Err() == nil {
		return err
	}
	return nil
}
