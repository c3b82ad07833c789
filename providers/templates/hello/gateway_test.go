package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// gatewayToken is the token that the stand-in wants from the provider.
const gatewayToken = "ptk-test"

// gateway is a stand-in for tapgw: one session, to which it binds one provider.
type gateway struct {
	url   string
	bound chan *websocket.Conn // has the provider's connection unless a call uses it
}

// startGateway starts a stand-in, which ends with the test.
func startGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{bound: make(chan *websocket.Conn, 1)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Tapgw-Proof", proof(r))
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		if err := bind(r.Context(), conn); err != nil {
			t.Errorf("binding the provider: %v", err)
			return
		}
		g.bound <- conn
	}))
	t.Cleanup(server.Close)
	g.url = "ws" + strings.TrimPrefix(server.URL, "http")
	return g
}

// proof shows the provider that this gateway knows the token.
func proof(r *http.Request) string {
	_, nonce, _ := strings.Cut(r.Header.Get("Tapgw-Prove"), " ")
	key := sha256.Sum256([]byte(gatewayToken))
	mac := hmac.New(sha256.New, key[:])
	_, _ = fmt.Fprintf(mac, "tapgw proof 1\n%s\n%s", nonce, r.Host)
	return fmt.Sprintf("%x %s", mac.Sum(nil), r.Host)
}

type message struct {
	Type  string          `json:"type"`
	Data  json.RawMessage `json:"data"`
	Error string          `json:"error"`
}

func bind(ctx context.Context, conn *websocket.Conn) error {
	for _, answer := range []string{
		`{"type":"sessions","active":[{"id":"s1","label":"test","cwd":"/"}]}`,
		`{"type":"hello.ack","protocolVersion":2,"providerId":"p1","sessionId":"s1","reconnectToken":"rt-1"}`,
	} {
		var m message // auth, then hello
		if err := wsjson.Read(ctx, conn, &m); err != nil {
			return err
		}
		if err := conn.Write(ctx, websocket.MessageText, []byte(answer)); err != nil {
			return err
		}
	}
	return nil
}

// call calls a tool of the provider and returns its result as JSON.
func (g *gateway) call(t *testing.T, tool, args string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var conn *websocket.Conn
	select {
	case conn = <-g.bound:
	case <-ctx.Done():
		t.Fatal("no provider is bound, want one")
	}
	defer func() { g.bound <- conn }()
	text := fmt.Sprintf(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":%q,"args":%s}`, tool,
		args)
	if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
	for {
		var m message
		if err := wsjson.Read(ctx, conn, &m); err != nil {
			t.Fatal(err)
		}
		if m.Error != "" {
			t.Fatalf("%s %s: got the error %s, want a result", tool, args, m.Error)
		}
		if m.Type == "tool.result" {
			return string(m.Data)
		}
	}
}
