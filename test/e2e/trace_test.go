//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// tree is each record below the kind of its parent, or the parent's id if there is no record of
// that.
func tree(records []adminapi.Record) (list []string) {
	kinds := map[string]string{"": "nothing"}
	for _, r := range records {
		kinds[r.Span] = r.Kind
	}
	for _, r := range records {
		above, ok := kinds[r.Parent]
		if !ok {
			above = r.Parent
		}
		list = append(list, r.Kind+" "+r.Tool+string(r.Fate)+" below "+above)
	}
	slices.Sort(list)
	return list
}

// One delivery of a webhook is one trace, from the request over the turn to the provider, in the
// records of a gateway that exports nothing: in a session without a model, and on the real runtime.
func TestTraceFromAWebhookToAProvider(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	want := []string{
		"call greet below turn", "gate greet below turn", "push delivered below source",
		"push queued below source", "source  below 00f067aa0ba902b7", "turn  below push",
	}
	for _, host := range []string{"local", "copilot"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			h.env = append(h.env, "CI_SECRET="+ciSecret)
			g := h.serveFiles()
			h.put(
				"providers/ci.toml",
				"kind = \"source\"\nwebhook = true\nsecret_env = \"CI_SECRET\"\nlevel = \"inject\"\n"+
					"text = \"{do}\"\n",
			)
			var session string
			if host == "local" {
				session = h.local()
			} else {
				session = h.copilot(model(t, scriptmodel.Calls))
			}
			p := g.peer(session, "greeter", message{"name": "greet"})
			p.send(message{"type": "hooks.update", "requestId": "rules", "onPreToolUse": []message{
				{"match": message{"tool": "greet"}, "action": "gate", "gateId": "g"}}})
			p.next("ack")
			// the file is read, and the source has its session
			eventually(t, patience, func() error {
				got := g.deliver("ci", ciSecret, `{"do":"call:greet {}"}`,
					"Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
				if got != http.StatusAccepted {
					return fmt.Errorf("a signed request: got %d, want 202", got)
				}
				return nil
			})
			gate := p.next("gate.check")
			p.send(message{"type": "gate.result", "callId": gate["callId"], "gateId": "g",
				"decision": "allow"})
			call := p.next("tool.call")
			p.send(message{"type": "tool.result", "id": call["id"], "data": "hello"})
			for _, m := range []message{gate, call} {
				if text, _ := m["traceparent"].(string); !strings.Contains(text, trace) {
					t.Errorf("the provider was told %q in %s, want the trace %s", text, m["type"],
						trace)
				}
			}
			h.waitIdle(session)
			list := decode[[]adminapi.Record](t, h.tapctl("records", "--trace", trace, "--json"))
			below := slices.Clone(want)
			if host == "local" {
				below[1] = "gate greet below call" // the runtime asks before it calls
			}
			if got := tree(list); !slices.Equal(got, below) {
				t.Errorf("the trace has\n%s\nwant\n%s", strings.Join(got, "\n"),
					strings.Join(below, "\n"))
			}
			table := h.tapctl("records", "--trace", trace)
			for _, line := range []string{" source ", " · push ", " · · turn ", " · · · call "} {
				if !strings.Contains(table, line) {
					t.Errorf("the trace is shown as\n%s\nwant %q, below what it is part of", table,
						line)
				}
			}
		})
	}
}
