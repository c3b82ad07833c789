package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/proof"
	"tapgw/internal/server"
)

// ask asks a gateway for a proof and returns its answer and what was dialled.
func ask(t *testing.T, base, question string) (r *http.Response, body string, dialled net.Addr) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(proof.AskHeader, question)
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, address)
				if err == nil {
					dialled = c.RemoteAddr()
				}
				return c, err
			},
		},
	}
	r, err = client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(text), dialled
}

// The gateway proves that it knows each of its tokens, at each of its addresses, and
// no other token.
func TestProof(t *testing.T) {
	g, s := running(t, server.Options{})
	pass := g.Issue(gateway.PassSpec{Trust: gateway.TrustProject})
	base := "http" + strings.TrimPrefix(s.URL(), "ws")
	port := base[strings.LastIndexByte(base, ':'):]
	for name, token := range map[string]string{"admin": g.AdminToken(),
		"instance": g.InstanceToken(),
		"spawn":    pass.Token()} {
		for _, base := range []string{base, "http://[::1]" + port, "http://localhost" + port} {
			q := proof.NewQuestion(token)
			r, _, dialled := ask(t, base, q.Header())
			if err := q.Check(r.Header.Get(proof.AnswerHeader), dialled); err != nil ||
				r.StatusCode != http.StatusOK {
				t.Errorf(
					"the %s token at %s: %d, %v, want no error and StatusCode %v",
					name, base, r.StatusCode, err, http.StatusOK,
				)
			}
		}
	}
	pass.Revoke()
	for name, question := range map[string]string{
		"an unknown token": proof.NewQuestion("ptk-0").Header(),
		"a revoked token":  proof.NewQuestion(pass.Token()).Header(),
	} {
		r, body, _ := ask(t, base, question)
		if r.StatusCode != http.StatusUnauthorized || r.Header.Get(proof.AnswerHeader) != "" ||
			!strings.Contains(body, `"AUTH_FAILED"`) {
			t.Errorf(
				`%s: %d %s %s, want %d with "AUTH_FAILED" and no proof`,
				name, r.StatusCode, body, r.Header, http.StatusUnauthorized,
			)
		}
	}
	for _, question := range []string{"x", "0123456789abcdef", "0123456789abcdef 00",
		strings.ToUpper(proof.NewQuestion("a").Header()) + "0"} {
		r, body, _ := ask(t, base, question)
		if r.StatusCode != http.StatusBadRequest ||
			!strings.Contains(body, "want 16 hexadecimal digits that name the token") {
			t.Errorf(
				"%q: %d %s, want %d and that it wants 16 hexadecimal digits",
				question, r.StatusCode, body, http.StatusBadRequest,
			)
		}
	}
}

// Questions about tokens that the gateway does not know are wrong tokens: who asks
// too many is refused.
func TestProofsAreLimited(t *testing.T) {
	g, s := running(t, server.Options{})
	base := "http" + strings.TrimPrefix(s.URL(), "ws")
	statuses := map[int]int{}
	for range 30 {
		r, _, _ := ask(t, base, proof.NewQuestion("ptk-0").Header())
		statuses[r.StatusCode]++
	}
	if statuses[http.StatusUnauthorized] < 20 || statuses[http.StatusTooManyRequests] == 0 ||
		len(statuses) != 2 {
		t.Errorf("30 questions about a wrong token: got statuses %v, want 401 and then 429",
			statuses)
	}
	// One about a right token is answered all the same.
	q := proof.NewQuestion(g.AdminToken())
	r, _, dialled := ask(t, base, q.Header())
	if err := q.Check(r.Header.Get(proof.AnswerHeader), dialled); err != nil {
		t.Errorf("after them, the right token: %d, %v", r.StatusCode, err)
	}
}

// A page of another origin can't ask.
func TestProofForPages(t *testing.T) {
	g, s := running(t, server.Options{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http"+strings.TrimPrefix(s.URL(), "ws")+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "https://evil.example")
	req.Header.Set(proof.AskHeader, proof.NewQuestion(g.AdminToken()).Header())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
		Timeout: 10 * time.Second}
	r, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusForbidden || r.Header.Get(proof.AnswerHeader) != "" {
		t.Errorf("a page got %d %v, want %d without a header for pages", r.StatusCode, r.Header,
			http.StatusForbidden)
	}
}
