package copilot

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
)

// sdkEventTypes reads the types of events from the SDK's source: its constants
// are in no list that a program could ask for.
func sdkEventTypes(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/github/copilot-sdk/go").Output()
	if err != nil {
		t.Fatalf("finding the SDK's source: %v", err)
	}
	file := filepath.Join(strings.TrimSpace(string(out)), "rpc", "zsession_events.go")
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "SessionEventType" {
			name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			types = append(types, name)
		}
		return true
	})
	return types
}

// TestEventsAreDocumented finds the types that came with a new SDK: what becomes of their
// events has to be thought about and said.
func TestEventsAreDocumented(t *testing.T) {
	types := append(sdkEventTypes(t), string(toolTimeType))
	if len(types) < 100 {
		t.Fatalf(
			"found %d types of events in the SDK, want at least 100: its source reads otherwise now", len(types))
	}
	file := filepath.Join("..", "..", "docs", "copilot.md")
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, said, ok := strings.Cut(string(doc), "\n## Events\n")
	if !ok {
		t.Fatalf("%s has no section Events", file)
	}
	said, _, _ = strings.Cut(said, "\n## ")
	table, raw, ok := strings.Cut(said, "\nThese are in the raw log alone")
	if !ok {
		t.Fatalf("%s: want a list of the events that are in the raw log alone", file)
	}
	for _, typ := range types {
		n := strings.Count(table, "\n| `"+typ+"` |") + strings.Count(raw, "`"+typ+"`")
		if n != 1 {
			t.Errorf("%s says of %s %d times what becomes of it, want 1", file, typ, n)
		}
	}
}

func TestTimelineLines(t *testing.T) {
	const info, warning = adminapi.LogInfo, adminapi.LogWarning
	for _, tt := range []struct {
		data  rpc.SessionEventData
		level adminapi.LogLevel
		text  string
	}{
		{&rpc.SessionWorkspaceFileChangedData{Path: "plan.md", Operation: "update"}, info,
			"workspace file plan.md was updated"},
		{&rpc.SessionPlanChangedData{Operation: "create"}, info, "the plan was created"},
		{&rpc.SessionSnapshotRewindData{EventsRemoved: 3}, info,
			"the session was rewound by 3 events"},
		{&rpc.SessionModelChangeData{NewModel: "b", PreviousModel: new("a"),
			ReasoningEffort: new("low"), Cause: new("the user")}, info,
			"model b, was a, effort low: the user"},
		{&rpc.SessionCompactionStartData{CurrentTokens: new(int64(90)),
			TokenLimit: new(int64(100))}, info,
			"compacting the conversation: 90 of 100 tokens are used"},
		{&rpc.SessionCompactionCompleteData{Success: true, MessagesRemoved: new(int64(1)),
			PreCompactionTokens: new(int64(90)), PostCompactionTokens: new(int64(10))}, info,
			"the conversation was compacted: 1 message became a summary, 90 tokens became 10"},
		{&rpc.SessionCompactionCompleteData{Error: new("no")}, warning,
			"the conversation could not be compacted: no"},
		{&rpc.SubagentCompletedData{AgentName: "explore", TotalToolCalls: new(int64(2)),
			TotalTokens: new(int64(30)),
			DurationMs:  new(int64(1500))}, info,
			"sub-agent explore is done: 2 tool calls, 30 tokens, 1.5s"},
		{&rpc.AutoModeSwitchRequestedData{ErrorCode: new("429"), RetryAfterSeconds: new(int64(9))},
			warning,
			"the model's rate limit is used up: 429; it ends in 9 s"},
		{&rpc.HookEndData{HookType: "stop", Success: true}, "", ""},
		{&rpc.SessionIdleData{}, "", ""},
	} {
		if level, text := timelineLine(tt.data); level != tt.level || text != tt.text {
			t.Errorf("%s: %s %q, want %s %q", tt.data.Type(), level, text, tt.level, tt.text)
		}
	}
}

func TestFailureText(t *testing.T) {
	status, ms, model := int32(429), int64(1500), "gpt-5-mini"
	for _, tt := range []struct {
		d    rpc.ModelCallFailureData
		want string
	}{
		{rpc.ModelCallFailureData{}, "a call of model (unknown) failed"},
		{
			rpc.ModelCallFailureData{Model: &model, StatusCode: &status, DurationMs: &ms,
				ErrorMessage: new(`{"code":"429","message":"slow\ndown"}`)},
			"a call of model gpt-5-mini failed with status 429 after 1.5s: slow",
		},
		{
			rpc.ModelCallFailureData{Model: &model, ErrorMessage: new(`"the stream broke"`)},
			"a call of model gpt-5-mini failed: the stream broke",
		},
		{
			rpc.ModelCallFailureData{Model: &model, ErrorMessage: new("not JSON\nat all")},
			"a call of model gpt-5-mini failed: not JSON",
		},
		{
			rpc.ModelCallFailureData{Model: &model, ErrorMessage: new(`{"error":"x"}`)},
			`a call of model gpt-5-mini failed: {"error":"x"}`,
		},
	} {
		if got := failureText(&tt.d); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}
