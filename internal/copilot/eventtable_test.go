package copilot

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/github/copilot-sdk/go/rpc"
)

var update = flag.Bool("update", false, "write the table of events into docs/copilot.md")

// sdkEventTypes reads the types of events from the SDK's source: its constants
// are in no list that a program could ask for.
func sdkEventTypes(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/github/copilot-sdk/go").Output()
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

func TestEventTableHasEveryTypeOnce(t *testing.T) {
	types := append(sdkEventTypes(t), string(toolTimeType))
	if len(types) < 100 {
		t.Fatalf("found %d types of events in the SDK, want at least 100: its source reads otherwise now", len(types))
	}
	rows := map[string]int{}
	for _, row := range eventTable {
		rows[string(row.typ)]++
	}
	for _, typ := range types {
		if rows[typ] == 0 {
			t.Errorf("%s: the SDK has it and eventTable has not, want a row that says what it becomes", typ)
		}
	}
	for typ, n := range rows {
		if n > 1 {
			t.Errorf("%s stands in eventTable %d times, want at most 1", typ, n)
		}
		if !slices.Contains(types, typ) {
			t.Errorf("%s: eventTable has it and the SDK has not, want no such row", typ)
		}
	}
}

func TestEventTableSaysWhatItDoes(t *testing.T) {
	for _, row := range eventTable {
		said := row.timeline != "" || row.live != "" || row.event != "" || row.also != ""
		if said && row.do == nil {
			t.Errorf("%s: the table says what it becomes, but nothing makes it so, want a function in its row", row.typ)
		}
		if (row.level == "") != (row.timeline == "") {
			t.Errorf("%s: has level %q and text %q, want both or neither", row.typ, row.level, row.timeline)
		}
	}
}

const (
	docBegin = "<!-- events: written by go test ./internal/copilot -run EventTable -update -->\n"
	docEnd   = "<!-- events: end -->\n"
)

// eventDoc is the table for people.
func eventDoc() string {
	var b strings.Builder
	b.WriteString("| Runtime event | Timeline | Live callback | `session.event` | Besides |\n|---|---|---|---|---|\n")
	var kept []string
	for _, row := range eventTable {
		name := "`" + string(row.typ) + "`"
		if row.timeline == "" && row.live == "" && row.event == "" && row.also == "" {
			kept = append(kept, name)
			continue
		}
		timeline := row.timeline
		if row.level != "" {
			timeline = fmt.Sprintf("%s: %s", row.level, row.timeline)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, timeline, code(row.live), code(row.event), row.also)
	}
	slices.SortFunc(kept, cmp.Compare[string])
	b.WriteString(
		"\nThese are in the raw log alone, as is every type that the table does not know: " + strings.Join(
			kept, ", ",
		) + ".\n",
	)
	return b.String()
}

func code(names string) string {
	if names == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(names, ", ", "`, `") + "`"
}

func TestEventTableIsDocumented(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "copilot.md")
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(doc, []byte(docBegin))
	_, after, ended := bytes.Cut(rest, []byte(docEnd))
	if !ok || !ended {
		t.Fatalf("%s: want the lines %q and %q, one is missing", file, docBegin, docEnd)
	}
	want := slices.Concat(before, []byte(docBegin), []byte(eventDoc()), []byte(docEnd), after)
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(doc, want) {
		t.Errorf(
			"%s has an old table of events, want the present one: go test ./internal/copilot -run EventTable -update",
			file,
		)
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
