package server

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/cluster"
	"tapgw/internal/gateway"
	"tapgw/internal/taptest/membus"
)

// staysHere are the routes that no other gateway may use.
var staysHere = []string{
	"POST /shutdown", "POST /signin-links", "POST /signout", "POST /sessions/{id}/mcp-token",
	"POST /sessions/{id}/provider-token",
	"POST /providers/{name}/login", "POST /providers/{name}/logout", "GET /pairings",
	"POST /terminals",
	"POST /terminals/hooks",
}

// TestEachRouteIsForGatewaysOrNot: a new route needs a decision.
func TestEachRouteIsForGatewaysOrNot(t *testing.T) {
	got := slices.Sorted(maps.Keys((&api{}).routes()))
	want := slices.Sorted(slices.Values(slices.Concat(forGateways, staysHere)))
	if !slices.Equal(got, want) {
		t.Errorf("the routes are\n%q\nwant each once in forGateways or staysHere:\n%q", got, want)
	}
}

// TestGatewaysGetNoToken: a gateway in control of [cluster] reaches no route that gives out a token
// or a right, however it writes the route, and reaches the others.
func TestGatewaysGetNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRESTBubble(t)
		bus := membus.New(1 << 20)
		join := func(name, other string, change func(*cluster.Options)) *cluster.Cluster {
			o := cluster.Options{Gateway: f.gateway, Log: slog.New(slog.DiscardHandler), Name: name,
				Version: "test", Admit: map[string]gateway.Trust{other: gateway.TrustProject}}
			if change != nil {
				o.Gateway = gateway.New(gateway.Options{})
				change(&o)
			}
			c, err := cluster.Start(o, bus)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			return c
		}
		here := join("a", "b", func(*cluster.Options) {})
		join("b", "a", func(o *cluster.Options) {
			o.Gateway, o.Control, o.API = f.gateway, []string{"a"}, f.server.GatewaysAPI()
		})
		time.Sleep(time.Second)
		session, err := f.gateway.Start(t.Context(), gateway.StartRequest{Host: gateway.HostLocal,
			CWD: "/"})
		if err != nil {
			t.Fatal(err)
		}
		at := "/sessions/" + session.ID()
		send := func(method, target, body string) *httptest.ResponseRecorder {
			time.Sleep(10 * time.Millisecond) // a gateway may ask a hundred times a second
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, method, "/", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			here.Forward(w, r, "b", target)
			return w
		}
		if w := send("GET", at, ""); w.Code != http.StatusOK {
			t.Errorf("the session: %d %s, want 200", w.Code, w.Body)
		}
		if w := send("POST", at+"/rename", `{"label":"renamed"}`); w.Code >= 300 ||
			session.View().Label != "renamed" {
			t.Errorf("a new label: %d %s, want it changed", w.Code, w.Body)
		}
		for _, route := range []string{at + "/mcp-token", at + "/provider-token", "/signin-links",
			"/signout",
			"/providers/x/login", "/terminals/hooks", "/terminals", "/gateways/c/status"} {
			name := route[strings.LastIndex(route, "/")+1:]
			for _, target := range []string{
				route, route + "?", route + "#", route + "?x", route + "#x", route + "/",
				route + "//", route + "/.",
				route + "%3F", route + "%23", route + "%2F", route + "%00", route + ";",
				"/" + route, "/." + route, "/x/.." + route, "/%2e" + route, "/x/%2e%2e" + route,
				"/x%2f.." + route, strings.TrimPrefix(route, "/"), "/../v1" + route, "@x" + route,
				"?" + route,
				strings.ReplaceAll(route, "/", "%2f"), strings.ReplaceAll(route, "/", "//"),
				strings.TrimSuffix(route, name) + strings.ToUpper(name),
				strings.TrimSuffix(route, name) + "%" + "6d" + name[1:],
				strings.TrimSuffix(route, name) + name + "%20",
			} {
				for _, method := range []string{"POST", "GET", "post", "PUT", "CONNECT", "HEAD",
					"OPTIONS", ""} {
					w := send(method, target, "{}")
					if isList := strings.HasPrefix(target, "/terminals") &&
						w.Code == http.StatusOK &&
						(method == "GET" || method == "HEAD" || method == ""); isList {
						continue // the list of terminals is no secret
					}
					if w.Code != http.StatusForbidden && w.Code != http.StatusBadRequest {
						t.Errorf("%q %q: %d %s, want 403 or 400", method, target, w.Code, w.Body)
					}
				}
			}
		}
	})
}

// TestGatewaysSeeNoPairingCode: the states for another gateway lack the codes that wait for a
// person.
func TestGatewaysSeeNoPairingCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRESTBubble(t)
		for name, handler := range map[string]http.Handler{"here": f.server.api,
			"gateways": f.server.GatewaysAPI()} {
			pipe := httptest.NewRecorder()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			r := httptest.NewRequestWithContext(ctx, "GET",
				apiPrefix+"/events?name=pairings&name=status", nil)
			handler.ServeHTTP(pipe, r)
			cancel()
			text := pipe.Body.String()
			if has := strings.Contains(text,
				"event: "+adminapi.StatePairings); has != (name == "here") ||
				!strings.Contains(text, "event: "+adminapi.StateStatus) {
				t.Errorf("%s: %s, want the status, and pairings here only", name, text)
			}
		}
	})
}
