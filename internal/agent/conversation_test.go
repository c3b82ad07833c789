package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"tapgw/internal/agent/consent"
	"tapgw/internal/agent/workspace"
	"tapgw/internal/langserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Without a person, a policy allows what lsclient.toml allows and refuses the rest.
func TestConfirm(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "lsclient.toml")
	err := os.WriteFile(config,
		[]byte("[allow]\nmcp = ['files', 'web/get']\noutside = ['/tmp/ok/**']\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	w, err := workspace.Open(workspace.Options{Dir: dir, ConfigFile: config, Note: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	v := &Conversation{Options: Options{Workspace: w, Policy: consent.New(w.Config, false, nil)}}
	tests := map[string]struct {
		q  langserver.Confirmation
		ok bool
	}{
		"a tool of ours decides itself": {langserver.Confirmation{Ours: true,
			Kind: langserver.Terminal}, true},
		"a server that is listed": {langserver.Confirmation{Kind: langserver.MCPTool,
			Server: "files", Tool: "read"}, true},
		"a tool that is listed": {langserver.Confirmation{Kind: langserver.MCPTool, Server: "web",
			Tool: "get"},
			true},
		"another tool of its server": {langserver.Confirmation{Kind: langserver.MCPTool,
			Server: "web", Tool: "post"}, false},
		"a path that is listed": {langserver.Confirmation{Kind: langserver.ReadFile,
			Path: "/tmp/ok/a"}, true},
		"a path that climbs out of it": {langserver.Confirmation{Kind: langserver.ReadFile,
			Path: "/tmp/ok/../a"},
			false},
		"another path": {langserver.Confirmation{Kind: langserver.EditFile, Path: "/etc/passwd"},
			false},
		"a command of the server's": {langserver.Confirmation{Kind: langserver.Terminal,
			Command: []string{"ls"}},
			false},
		"a kind that is not known": {langserver.Confirmation{Kind: "new", Tool: "x"}, false},
	}
	for name, tt := range tests {
		if err := v.decide(t.Context(), tt.q); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want consent: %v", name, err, tt.ok)
		}
	}
	v.Policy = consent.New(w.Config, true, nil)
	if err := v.decide(t.Context(), langserver.Confirmation{Kind: langserver.EditFile,
		Path: "/etc/passwd"}); err != nil {
		t.Errorf("editing with --yes: got %v, want no error", err)
	}
	inGit := langserver.Confirmation{Kind: langserver.EditFile, Path: "/tmp/ok/.git/config"}
	err = v.decide(t.Context(), inGit)
	if err == nil || !strings.Contains(err.Error(), "is protected") ||
		!strings.Contains(err.Error(), "a person must allow such a write") {
		t.Errorf(
			"writing to a protected place with --yes: got %v, want that a person must allow it",
			err)
	}
	if err := v.decide(t.Context(), langserver.Confirmation{Kind: langserver.ReadFile,
		Path: "/tmp/ok/.git/config"}); err != nil {
		t.Errorf("reading in a protected place: got %v, want no error", err)
	}
	person := &person{answers: []consent.Answer{{Word: consent.Once}, {}}}
	v.Policy = consent.New(w.Config, false, person)
	if err := v.decide(t.Context(), inGit); err != nil ||
		!strings.HasPrefix(person.asked, "write /tmp/ok/.git/config, which is protected: ") {
		t.Errorf("a person who allows a protected write was asked %q, with the result %v; "+
			"want the path and why, no error", person.asked, err)
	}
	if err := v.decide(t.Context(), inGit); err == nil {
		t.Error("a protected write that a person refuses: got no error, want one")
	}
}

// person answers questions, and keeps the text of the last one.
type person struct {
	answers []consent.Answer
	asked   string
}

func (p *person) Ask(_ context.Context, q consent.Question) (a consent.Answer, _ error) {
	p.asked = q.Text
	a, p.answers = p.answers[0], p.answers[1:]
	return a, nil
}

// Tools that are left out for the same reason share a line.
func TestLeftOut(t *testing.T) {
	got := leftOut([]langserver.Fault{{Tool: "a", Reason: "too many"}, {Tool: "x", Reason: "bad"},
		{Tool: "b", Reason: "too many"}, {Tool: "c", Reason: "too many"},
		{Tool: "d", Reason: "too many"}, {Tool: "y", Reason: "worse"},
		{Tool: "z", Reason: "worse"}})
	want := []string{"tools a, b, c, d: too many", `tool "x": bad`, "tools y, z: worse"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var many []langserver.Fault
	for i := range 12 {
		many = append(many, langserver.Fault{Tool: fmt.Sprint(i), Reason: "too many"})
	}
	if got, want := leftOut(
		many), "tools 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more: too many"; got[0] != want {
		t.Errorf("%q, want %q", got[0], want)
	}
}
