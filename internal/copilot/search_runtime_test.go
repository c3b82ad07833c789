//go:build runtime

package copilot

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// searching is a session with tools past the threshold.
func searching(t *testing.T, change ...func(*Options)) (*rig, *fakeSession) {
	t.Helper()
	change = append(change, func(o *Options) { o.ToolThreshold = new(2) })
	g := newRig(t, change...)
	s := g.start()
	for _, name := range []string{"brew_tea", "boil_water", "paint_wall"} {
		s.tool(name, func(_ context.Context, args string) gateway.Outcome {
			return gateway.Outcome{Data: raw(fmt.Sprintf("%q", name+" "+args))}
		})
	}
	return g, s
}

// offered are the tools of providers, and those in their place, in the model's last request.
func (g *rig) offered() (names []string) {
	requests := g.model.Requests()
	for _, name := range requests[len(requests)-1].ToolNames() {
		if slices.Contains([]string{"search_tools", "describe_tool", "call_tool", "brew_tea",
			"boil_water",
			"paint_wall"}, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func enableHooks(t *testing.T, s *fakeSession) {
	t.Helper()
	if err := s.info.EnableHooks(s.ctx); err != nil {
		t.Fatal(err)
	}
}

// waitSearches waits until the runtime has the searchers, or has them no more.
func (g *rig) waitSearches(s *fakeSession, want bool) {
	g.t.Helper()
	host, ok := s.host.(*session)
	if !ok {
		g.t.Fatalf("the host is a %T, want a session", s.host)
	}
	names := func() (names []string) {
		if host.configLock.Lock(g.ctx) != nil {
			return nil
		}
		defer host.configLock.Unlock()
		for _, d := range host.appliedTools {
			names = append(names, d.Name)
		}
		return names
	}
	for slices.Contains(names(), "call_tool") != want {
		if g.ctx.Err() != nil {
			g.t.Fatalf("the runtime has %q, want the searchers: %v", names(), want)
		}
		runtime.Gosched()
	}
}

// Past the threshold the model finds a tool, reads what it takes, and calls it; everything else
// sees that tool.
func TestToolsAreSearched(t *testing.T) {
	g, s := searching(t)
	var mu sync.Mutex
	var asked []string
	s.preToolUse = func(tool string, args protocol.Raw) gateway.Decision {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, tool+" "+string(args))
		return gateway.Decision{Deny: tool == "paint_wall", Reason: "the wall is dry"}
	}
	enableHooks(t, s)
	s.turn(`call:search_tools {"query":"brew some tea"}`)
	if got := g.offered(); !slices.Equal(got,
		[]string{"call_tool", "describe_tool", "search_tools"}) {
		t.Errorf("the model is offered %q, want the three to search", got)
	}
	if !strings.Contains(s.lastSaid(), `"name":"brew_tea"`) ||
		strings.Contains(s.lastSaid(), "paint_wall") {
		t.Errorf("the search found %s, want brew_tea and not paint_wall", s.lastSaid())
	}
	s.turn(`call:describe_tool {"name":"brew_tea"}`)
	if !strings.Contains(s.lastSaid(), `"inputSchema":{"type":"object","properties":{"x"`) {
		t.Errorf("the description is %s, want the schema in it", s.lastSaid())
	}
	s.turn(`call:call_tool {"name":"brew_tea","arguments":{"x":"green"}}`)
	if want := `brew_tea {"x":"green"}`; s.lastSaid() != want {
		t.Errorf("the model said %q, want %q", s.lastSaid(), want)
	}
	s.turn(`call:call_tool {"name":"paint_wall"}`)
	if !strings.Contains(s.lastSaid(), "the wall is dry") {
		t.Errorf("the model said %q, want the gate's reason", s.lastSaid())
	}
	s.turn(`call:call_tool {"arguments":{}}`)
	if !strings.Contains(s.lastSaid(), "INVALID_ARGUMENTS: call_tool takes name") {
		t.Errorf("the model said %q, want what call_tool takes", s.lastSaid())
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{`brew_tea {"x":"green"}`, `paint_wall {}`} {
		if !slices.Contains(asked, want) {
			t.Errorf("the gates were asked about %q, want %s among them", asked, want)
		}
	}
	if !slices.ContainsFunc(s.allEvents(), func(e gateway.Event) bool {
		return e.Callback == gateway.OnStartToolExecution && e.Tool == "brew_tea" &&
			e.Provider == "tests" &&
			e.Args == `{"x":"green"}`
	}) {
		t.Errorf("the events are %s, want the start of brew_tea", describe(s.allEvents()))
	}
}

// The gateway asks the gates of a call about which no hook did.
func TestSearchedCallsAreGatedOnce(t *testing.T) {
	_, s := searching(t, readsAll)
	s.turn(`call:call_tool {"name":"brew_tea"}`)
	s.preToolUse = func(string, protocol.Raw) gateway.Decision { return gateway.Decision{} }
	enableHooks(t, s)
	s.turn(`call:call_tool {"name":"brew_tea"}`)
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := []bool{true, false}; !slices.Equal(s.gated, want) {
		t.Errorf(
			"the gateway was to ask the gates: %v, want %v: without a hook, and not again after one", s.gated, want)
	}
}

// The list follows tools that come and go, and a threshold that changes.
func TestSearchFollowsTheThreshold(t *testing.T) {
	g, s := searching(t)
	s.turn("hello")
	if got := g.offered(); len(got) != 3 || got[0] != "call_tool" {
		t.Errorf("with three tools the model is offered %q, want the three to search", got)
	}
	s.removeTool("paint_wall")
	s.turn("hello")
	if got := g.offered(); !slices.Equal(got, []string{"boil_water", "brew_tea"}) {
		t.Errorf("with two tools the model is offered %q, want them", got)
	}
	o := g.r.o
	o.ToolThreshold = new(0)
	g.r.Configure(o)
	g.waitSearches(s, true)
	s.turn("hello")
	if got := g.offered(); len(got) != 3 || got[0] != "call_tool" {
		t.Errorf("with a threshold of 0 the model is offered %q, want the three to search", got)
	}
	o.ToolThreshold = nil
	g.r.Configure(o)
	g.waitSearches(s, false)
	s.turn("hello")
	if got := g.offered(); !slices.Equal(got, []string{"boil_water", "brew_tea"}) {
		t.Errorf("without a threshold the model is offered %q, want the tools", got)
	}
}

// A person is asked about the tool that is called, and what a profile excludes stays out.
func TestSearchedToolsArePermittedByName(t *testing.T) {
	profile := configs.DefaultProfile()
	profile.ExcludedTools = []string{"paint_wall"}
	_, s := searching(t, func(o *Options) {
		o.Permissions.CustomTool, o.Profile = configs.Ask, profile
	})
	var questions []string
	s.answer = func(_ context.Context, q gateway.Question) (gateway.Answer, error) {
		s.record(func() { questions = append(questions, q.Detail) })
		return gateway.Answer{Decision: adminapi.DecideSession}, nil
	}
	s.turn(`call:search_tools {"query":"paint brew boil"}`)
	if strings.Contains(s.lastSaid(), "paint_wall") || !strings.Contains(s.lastSaid(), "brew_tea") {
		t.Errorf("the search found %s, want no tool that the profile excludes", s.lastSaid())
	}
	s.turn(`call:call_tool {"name":"brew_tea"}`)
	s.turn(`call:call_tool {"name":"brew_tea"}`)
	s.turn(`call:call_tool {"name":"boil_water"}`)
	s.turn(`call:call_tool {"name":"paint_wall"}`)
	if !strings.Contains(s.lastSaid(), "NOT_FOUND") {
		t.Errorf("the model said %q of an excluded tool, want NOT_FOUND", s.lastSaid())
	}
	if want := []string{"brew_tea {}", "boil_water {}", "paint_wall {}"}; !slices.Equal(questions,
		want) {
		t.Errorf("the questions are %q, want one for each tool: %q", questions, want)
	}
}
