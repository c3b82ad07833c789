//go:build e2e && linux

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/providers"
)

func admitting(own string) string {
	others := slices.DeleteFunc([]string{"a", "b", "c", "d", "e"}, func(n string) bool {
		return n == own
	})
	for i, n := range others {
		others[i] = n + ` = "project"`
	}
	return "share = [\"*\"]\nadmit = { " + strings.Join(others, ", ") + " }"
}

func TestTwoMachines(t *testing.T) {
	urls := []string{natsNodes(t, 1)[0].url}
	a, b := newMachine(t, "a", urls, admitting("a")),
		newMachine(t, "b", urls, "control = [\"a\"]\n"+admitting("b"))
	until(t, "they see each other", func() bool { return a.sees(b) && b.sees(a) })
	b.write("providers/filed.toml",
		"kind = \"command\"\ncommand = [\"sleep\", \"60\"]\nsessions = \"all\"\n", t)
	started := make(chan struct{}, 1)
	b.provide("gpu", func(p *providers.Provider) {
		type input struct{ Text string }
		shout := func(_ context.Context, in input) (string, error) {
			return strings.ToUpper(in.Text), nil
		}
		providers.AddTool(p, "shout", "shouts", shout)
		hang := func(ctx context.Context, _ struct{}) (string, error) {
			started <- struct{}{}
			<-ctx.Done()
			return "", ctx.Err()
		}
		providers.AddTool(p, "hang", "never answers", hang)
	})
	session := a.session("work")
	until(t, "the tool is there", func() bool {
		out, _ := a.tapctl("tools", "--session", session)
		return strings.Contains(out, "shout")
	})
	if out, code := a.tapctl("tools", "call", "--session", session, "shout", "--args",
		`{"Text":"hi"}`); code != 0 ||
		!strings.Contains(out, "HI") {
		t.Errorf("the call: exit %d, %s, want HI", code, out)
	}
	var rows []adminapi.Session
	out, code := b.tapctl("sessions", "--all", "--json")
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 0 || len(rows) != 1 ||
		rows[0].Gateway != "a" {
		t.Errorf("sessions --all at b: exit %d, %v, %s, want the session of a", code, err, out)
	}
	out, _ = a.tapctl("providers", "--all", "--json")
	if !strings.Contains(out, `"gpu"`) || !strings.Contains(strings.ReplaceAll(out, " ", ""),
		`"gateway":"b"`) {
		t.Errorf("providers --all at a: %s, want gpu of b", out)
	}
	check := a.command("tapgw", "cluster", "check", "--config", a.home+"/tapgw.toml")
	if out, err := check.CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "in the name of any gateway") {
		t.Errorf("cluster check: %v\n%s, want a warning that nobody vouches for names", err, out)
	}

	out, code = a.tapctl("--gateway", "b", "sessions", "start", "--host", "local", "--cwd", "/",
		"--label", "far")
	if code != 0 {
		t.Errorf("sessions start at b: exit %d, %s", code, out)
	}
	out, code = a.tapctl("sessions", "query", "--gateway", "b", "far", `call:shout {"Text":"far"}`)
	if code != 0 || !strings.Contains(out, "FAR") {
		t.Errorf("sessions query at b: exit %d, %s, want FAR", code, out)
	}
	out, code = b.tapctl("--gateway", "a", "sessions")
	if code != 5 || !strings.Contains(out, "control of [cluster]") {
		t.Errorf("b acts on a: exit %d, %s, want 5 and why", code, out)
	}
	out, code = a.tapctl("--gateway", "b", "mcp", "token", "--session", "far")
	if code != 5 || !strings.Contains(out, "not for other gateways") {
		t.Errorf("a token of b: exit %d, %s, want 5 and why", code, out)
	}
	for _, m := range []*machine{a, b} {
		until(t, "the records of "+m.name+" have the remote action", func() bool {
			out, _ := m.tapctl("records", "--json")
			return strings.Contains(out, `"kind":"remote"`) &&
				strings.Contains(out, "POST /sessions")
		})
	}

	ended := make(chan string, 1)
	var took time.Duration
	go func() {
		out, code := a.tapctl("tools", "call", "--session", session, "hang", "--args", "{}",
			"--json")
		ended <- fmt.Sprint(code, " ", out)
	}()
	<-started
	began := time.Now()
	b.kill()
	result := <-ended
	took = time.Since(began)
	// 2 s, and tapctl's own time
	if !strings.Contains(result, "DISCONNECTED") || took > 3*time.Second {
		t.Errorf(
			"the call of the gateway that was killed: %s after %s, want DISCONNECTED within 2 s",
			result, took)
	}
	wasDoubtful := false
	until(t, "b has left the list", func() bool {
		gateways := a.cluster().Gateways
		for _, g := range gateways {
			wasDoubtful = wasDoubtful || g.State == adminapi.GatewayDoubtful
		}
		return len(gateways) == 0
	})
	if took := time.Since(began); !wasDoubtful || took > 15*time.Second {
		t.Errorf("b has left the list after %s, doubtful before: %v, want within 15 s and doubtful",
			took, wasDoubtful)
	}
}

// A gateway runs a program for each session of another one, as far as its config says.
func TestEachSessionElsewhere(t *testing.T) {
	urls := []string{natsNodes(t, 1)[0].url}
	a := newMachine(t, "a", urls, admitting("a"))
	b := newMachine(t, "b", urls, "max_each = 1\n"+admitting("b"))
	until(t, "they see each other", func() bool { return a.sees(b) && b.sees(a) })
	b.write("providers/weather.toml",
		fmt.Sprintf("kind = \"command\"\ncommand = [%q, \"__demo-provider\"]\n"+
			"sessions = \"each\"\n", filepath.Join(bin, "tapgw")), t)
	sessions := []string{a.session("one"), a.session("two")}
	serving := func() (list []string) {
		for _, id := range sessions {
			if out, _ := a.tapctl("tools", "--session", id); strings.Contains(out, "get_weather") {
				list = append(list, id)
			}
		}
		return list
	}
	until(t, "a session has the tool", func() bool { return len(serving()) > 0 })
	first := serving()
	if len(first) != 1 {
		t.Fatalf("sessions %v have the tool, want one, which is max_each", first)
	}
	out, code := a.tapctl("tools", "call", "--session", first[0], "get_weather", "--args",
		`{"city":"Bonn"}`)
	if code != 0 {
		t.Errorf("the call: exit %d, %s", code, out)
	}
	b.session("own")
	if out, code := a.tapctl("sessions", "stop", first[0]); code != 0 {
		t.Errorf("sessions stop: exit %d, %s", code, out)
	}
	until(t, "the other session has the tool in its place", func() bool {
		now := serving()
		return len(now) == 1 && now[0] != first[0]
	})
	out, _ = b.tapctl("providers", "--json")
	if n := strings.Count(out, `"weather"`); n < 2 {
		t.Errorf("providers of b: %s, want one for its own session and one for that of a", out)
	}
}
