//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coder/websocket"
)

func init() { programs["gatekeeper"] = gatekeeper }

// gatekeeper starts a provider in a process of its own that says what it is
// asked, and nothing else. Its name is its own, too.
func (s *agent) gatekeeper(rule message) *process {
	s.t.Helper()
	hello, err := json.Marshal(with(message{"type": "hello", "name": "gatekeeper",
		"protocolVersion": 2, "session": s.session}, rules(rule)))
	if err != nil {
		s.t.Fatal(err)
	}
	p := start(s.t, "gatekeeper", s.program("gatekeeper", string(hello)))
	p.expect("bound")
	return p
}

// gatekeeper is the program: its argument is its hello.
func gatekeeper(args []string) error {
	url, token, err := gatewayAccess(".provider-token")
	if err != nil {
		return err
	}
	ctx := context.Background()
	ws, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return err
	}
	auth, err := json.Marshal(message{"type": "auth", "token": strings.TrimSpace(token)})
	if err != nil {
		return err
	}
	if err := ws.Write(ctx, websocket.MessageText, auth); err != nil {
		return err
	}
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			return err
		}
		m := message{}
		if err := json.Unmarshal(data, &m); err != nil {
			return err
		}
		switch m["type"] {
		case "sessions":
			if err := ws.Write(ctx, websocket.MessageText, []byte(args[0])); err != nil {
				return err
			}
		case "hello.ack":
			fmt.Println("bound")
		case "gate.check":
			fmt.Println("asked", m["gateId"])
		case "error":
			return fmt.Errorf("the gateway says %s", data)
		}
	}
}
