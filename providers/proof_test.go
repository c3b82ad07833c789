package providers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"tapgw/providers"
)

// A program on the gateway's port gets no token, and a relay to the gateway is recognized.
func TestImpostorGetsNoToken(t *testing.T) {
	g := newGateway(t)
	target, err := url.Parse("http" + strings.TrimPrefix(g.url, "ws"))
	if err != nil {
		t.Fatal(err)
	}
	relay := httputil.NewSingleHostReverseProxy(target)
	relay.ErrorLog = nil
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	heard := make(chan string, 16)
	for name, tt := range map[string]struct {
		answers http.Handler
		says    string
	}{
		"it takes every provider": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ws, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			if _, data, err := ws.Read(r.Context()); err == nil {
				heard <- string(data)
			}
		}), "is not the gateway of the token: it could not prove that it knows the token"},
		"a relay": {relay, "is not the gateway of the token: it passes connections on: "},
		"another gateway": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w,
				`{"error":{"code":"AUTH_FAILED","message":"this gateway does not know the token"}}`)
		}), "the gateway refused the token: this gateway does not know the token"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := home(t)
			writeState(t, dir, ".provider-token", "ptk-file")
			srv := httptest.NewServer(tt.answers)
			defer srv.Close()
			writeState(t, dir, "gateway.json",
				fmt.Sprintf(`{"url":%q,"pid":1}`, "ws"+strings.TrimPrefix(srv.URL, "http")))
			o := &providers.Options{Logger: quiet,
				HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
			errs := errorsOf(o)
			run(t, providers.New("sample", o))
			if err := receive(t, errs); !strings.Contains(err.Error(), tt.says) {
				t.Errorf("OnError heard %v, want …%s…", err, tt.says)
			}
			select {
			case text := <-heard:
				t.Errorf("it heard %s, want nothing", text)
			case p := <-g.peers:
				if text, ok := <-p.msgs; ok {
					t.Errorf("the gateway behind it heard %v, want nothing", text)
				}
			default:
			}
		})
	}

	t.Run("a tunnel of the user's own", func(t *testing.T) {
		home(t)
		srv := httptest.NewServer(relay)
		defer srv.Close()
		o := &providers.Options{URL: srv.URL, Token: "ptk-given", Logger: quiet,
			HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
		run(t, providers.New("sample", o))
		for {
			if m, ok := <-g.accept().msgs; ok {
				if m["token"] != "ptk-given" {
					t.Errorf("got %v, want its token", m)
				}
				return
			}
		}
	})
}
