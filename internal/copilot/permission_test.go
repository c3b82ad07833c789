package copilot

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

func TestInside(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "dir")
	for _, d := range []string{"dir/a/b/c", "dir/..hidden", "dirty", "other"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"dir/out": "../other", "dir/in": "a/b/c", "dir/deep": "a/b/c", "dir/nowhere": "../nowhere",
		"also":      "dir",
		"dir/later": "a/later",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		path string
		want bool
	}{
		{"dir", true},
		{"dir/", true},
		{"dir/a/b", true},
		{"dir/new/file", true},
		{"dir/..hidden/x", true},
		{"dir/in/x", true},
		{"also/a", true},
		{"dirty", false},
		{"other", false},
		{"dir/..", false},
		{"dir/../other", false},
		{"dir/out", false},
		{"dir/out/x", false},
		{"dir/nowhere", false},
		{"dir/later", true},
		{"dir/a/../../other", false},
		{"dir/new/../../other/x", false},
		// The system goes to the parent of where the symlink leads, who cleans
		// paths to that of the symlink: neither may be outside.
		{"dir/out/../dir/a", true},
		{"dir/deep/../../../../other", false},
		{"dir/deep/../../../other", false},
	}
	for _, tt := range tests {
		if got := inside(root+"/"+tt.path, dir); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.path, got, tt.want)
		}
	}
	if inside("/", "") {
		t.Error("inside(/, no directory) is true, want false")
	}
}

// Without any setting, given its defaults or not, a session may read in its directory and do
// nothing else that leaves the gateway.
func TestZeroPermissionsAreSafe(t *testing.T) {
	dir := t.TempDir()
	requests := []struct {
		req  rpc.PermissionRequest
		want bool
	}{
		{&rpc.PermissionRequestRead{Path: "notes"}, true},
		{&rpc.PermissionRequestRead{Path: "/etc/passwd"}, false},
		{&rpc.PermissionRequestShell{FullCommandText: "true"}, false},
		{&rpc.PermissionRequestWrite{FileName: "notes"}, false},
		{&rpc.PermissionRequestURL{URL: "https://example.com/"}, false},
		{&rpc.PermissionRequestMCP{ServerName: "s", ToolName: "t"}, false},
		{&rpc.PermissionRequestMemory{Fact: "f"}, false},
		{&rpc.PermissionRequestHook{ToolName: "bash"}, false},
		{&rpc.PermissionRequestExtensionManagement{}, false},
	}
	for name, p := range map[string]configs.Permissions{"zero": {},
		"defaults": configs.Permissions{}.WithDefaults()} {
		s := &session{cwd: dir, o: &Options{Permissions: p}}
		for _, r := range requests {
			denial, mustAsk := s.policy(r.req)
			if got := denial == "" && !mustAsk; got != r.want {
				t.Errorf(
					"%s permissions, request of kind %q: got allowed %v (%q), want %v", name,
					r.req.Kind(), got, denial,
					r.want,
				)
			}
		}
	}
}

// A write to a place that makes programs run is asked about whatever the policy
// allows, and denied where the policy denies it.
func TestProtectedWritesAreAsked(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(os.Symlink(".git", filepath.Join(dir, "link")),
		os.Mkdir(filepath.Join(dir, "a"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	decided := func(p configs.Permissions, path string) string {
		s := &session{
			cwd: dir,
			o: &Options{
				Permissions: p.WithDefaults(), Sources: func() []string {
					return []string{filepath.Join(dir, "mine")}
				},
			},
		}
		switch denial, ask := s.policy(&rpc.PermissionRequestWrite{FileName: path}); {
		case denial != "":
			return configs.Deny
		case ask:
			return configs.Ask
		}
		return configs.Allow
	}
	every := configs.Permissions{Write: configs.Deny, AllowWritePaths: []string{"**"}}
	for _, path := range []string{
		".git/config", ".GIT/hooks/x", "link/config", dir + "/.tapgw/tapgw.toml",
		"a/../.git/config", "mine/x.py",
		".vscode/tasks.json",
	} {
		for name, p := range map[string]configs.Permissions{
			"allowed": {Write: configs.Allow}, "asked": {Write: configs.Ask}, "by a pattern": every,
		} {
			if got := decided(p, path); got != configs.Ask {
				t.Errorf("%s, %s: %s, want %s", path, name, got, configs.Ask)
			}
		}
		if got := decided(configs.Permissions{}, path); got != configs.Deny {
			t.Errorf("%s, denied: %s, want %s", path, got, configs.Deny)
		}
		if got := decided(configs.Permissions{
			Write: configs.Allow, DenyPaths: []string{"**"},
		}, path); got != configs.Deny {
			t.Errorf("%s, denied by a pattern: %s, want %s", path, got, configs.Deny)
		}
	}
	for name, p := range map[string]configs.Permissions{"allowed": {Write: configs.Allow},
		"by a pattern": every} {
		if got := decided(p, "src/x.go"); got != configs.Allow {
			t.Errorf("an ordinary file, %s: %s, want %s", name, got, configs.Allow)
		}
	}
}

// A session whose directory holds the gateway's tokens, such as the user's home or that
// of temporary files, reads the rest of it.
func TestReadsOfTokens(t *testing.T) {
	home := t.TempDir()
	for _, dir := range []string{"run/tap/providers", "run/mine", "private/session", "notes"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("run/tap", filepath.Join(home, "link")); err != nil {
		t.Fatal(err)
	}
	s := &session{cwd: home, outputDir: filepath.Join(home, "private/session"),
		o: &Options{
			Permissions: configs.Permissions{}.WithDefaults(),
			Secrets:     []string{filepath.Join(home, "run/tap")},
		}}
	for path, ok := range map[string]bool{
		"notes/x": true, "notes": true, "run/mine": true, "new": true, "private/session": true,
		"private/session/result.txt": true,
		"run/tap/.admin-token":       false, "run/tap": false, "link/providers/x.token": false,
		"notes/../link/.admin-token": false,
		"run":                        false, "private/other.sh": false, "private": false,
		".": false,
	} {
		if denial, _ := s.policy(&rpc.PermissionRequestRead{Path: path}); (denial == "") != ok {
			t.Errorf("%s: %q, want none: %v", path, denial, ok)
		}
	}

	// A prompt that attaches all of it attaches no token, and one that brings a file does, though
	// it lies beside them.
	upload := filepath.Join(home, "run/tap/uploads/1-a.txt")
	if err := os.MkdirAll(filepath.Dir(upload), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{upload, filepath.Join(home, "run/tap/.admin-token")} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := &session{cwd: t.TempDir(), o: s.o, outputDir: s.outputDir}
	if _, err := elsewhere.attachments([]gateway.Attachment{
		{Path: home}, {Path: filepath.Join(home, "run/tap/.admin-token")},
		{Path: upload, Name: "a.txt"},
	}); err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{
		"notes/x": true, "run/tap/uploads/1-a.txt": true, "run/tap/uploads": false,
		"run/tap/.admin-token": false, "link/.admin-token": false, "run": false,
	} {
		path = filepath.Join(home, path)
		denial, _ := elsewhere.policy(&rpc.PermissionRequestRead{Path: path})
		if (denial == "") != ok {
			t.Errorf("%s, attached: %q, want none: %v", path, denial, ok)
		}
	}
}

// A person is shown the whole action, and a model's reasons in one short line.
func TestPermissionQuestionIsWhole(t *testing.T) {
	long := "git status " + strings.Repeat("x", 40_000) + "; rm -rf END"
	q := permissionQuestion(&rpc.PermissionRequestShell{
		FullCommandText: long, Intention: "look\n\n\n" + strings.Repeat("y", 5000) + " around",
	}, "")
	if q.Detail != long {
		t.Errorf(
			"the command is shown as %d bytes of %d: …%s, want all of it",
			len(q.Detail), len(long), q.Detail[max(0, len(q.Detail)-50):],
		)
	}
	if strings.Contains(q.Message, "\n") || len(q.Message) > 1000 ||
		!strings.Contains(q.Message, "to: look yyy") || !strings.Contains(q.Message, "left out") {
		t.Errorf(
			`the reasons: %q, want one line of at most 1000 bytes with "to: look yyy" and "left out" in it`,
			q.Message,
		)
	}
	q = permissionQuestion(
		&rpc.PermissionRequestWrite{FileName: "a\x1b[2J\nb",
			Diff: strings.Repeat("+x\n", 9000) + "+END"}, "",
	)
	if !strings.HasPrefix(q.Detail, `a\x1b[2J\nb`+"\n+x") || !strings.HasSuffix(q.Detail, "+END") {
		t.Errorf(`a file's name: %.40q, want %q at its start and "+END" at its end`, q.Detail,
			`a\x1b[2J\nb`+"\n+x")
	}
	if q = permissionQuestion(&rpc.PermissionRequestURL{URL: "https:ｅvil.example"},
		""); !strings.Contains(
		q.Detail, "https:ｅvil.example\nwhich is https://evil.example/",
	) {
		t.Errorf("a URL: %q, want %q in it", q.Detail,
			"https:ｅvil.example\nwhich is https://evil.example/")
	}
}

// An answer for the session holds for a file until that makes programs run.
func TestApprovalsOfProtectedFiles(t *testing.T) {
	s := &session{cwd: t.TempDir(), o: &Options{}}
	plain, config := &rpc.PermissionRequestWrite{FileName: "a.go"},
		&rpc.PermissionRequestWrite{FileName: ".git/config"}
	s.approve(plain)
	s.approve(config)
	if !s.isApproved(plain) {
		t.Error("a plain file is not approved, want it approved")
	}
	if s.isApproved(config) {
		t.Error("a protected file is written without a question, want a question")
	}
}

// toolOwners are the providers of a session's tools: identities by tool.
type toolOwners struct {
	gateway.HostCalls
	of map[string]string

	answers func()
	asked   []gateway.Question
}

func (o *toolOwners) ToolProvider(tool string) (name, identity string) {
	return strings.TrimRight(o.of[tool], "0123456789"), o.of[tool]
}

func (o *toolOwners) Note(adminapi.LogLevel, string) {}

func (o *toolOwners) Ask(_ context.Context, q gateway.Question) (gateway.Answer, error) {
	o.asked = append(o.asked, q)
	if o.answers != nil {
		o.answers()
	}
	return gateway.Answer{Decision: adminapi.DecideSession}, nil
}

// An answer for the session holds for one provider's tool, and ends when another provider takes its
// place.
func TestApprovalIsOfItsProvider(t *testing.T) {
	ready := make(chan struct{})
	close(ready)
	owners := &toolOwners{of: map[string]string{"deploy": "alpha1"}}
	s := &session{o: &Options{Permissions: configs.Permissions{CustomTool: configs.Ask}},
		calls: owners, ready: ready, ctx: t.Context(), log: slog.New(slog.DiscardHandler),
		toolsChanged: make(chan struct{}), lines: newQueue[line]()}
	call := func(step string, wantAsked int, wantAllowed bool) {
		t.Helper()
		owners.asked = nil
		d := s.decide(t.Context(), &rpc.PermissionRequestCustomTool{ToolName: "deploy"}, nil)
		_, isAllowed := d.(*rpc.PermissionDecisionApproveOnce)
		if len(owners.asked) != wantAsked || isAllowed != wantAllowed {
			t.Errorf("%s: asked %d times, allowed %v; want %d and %v", step, len(owners.asked),
				isAllowed, wantAsked, wantAllowed)
		}
	}
	changeTo := func(identity string) {
		owners.of["deploy"] = identity
		if err := s.SetTools(t.Context(), 1, nil); err != nil {
			t.Error(err)
		}
	}
	call("the first call", 1, true)
	if q := owners.asked[0]; !strings.Contains(q.Message,
		"(session: this tool of provider alpha from now on)") {
		t.Errorf("the question %q does not say whose tool it is", q.Message)
	}
	call("the next call", 0, true)
	changeTo("")
	changeTo("alpha1")
	call("after its provider was away", 0, true)
	owners.of["deploy"] = "beta2"
	call("the tool of another, of which the session has not heard yet", 1, true)
	changeTo("alpha1")
	call("the first is back, after another had its place", 1, true)
	changeTo("alpha3")
	owners.answers = func() { owners.of["deploy"] = "gamma4" }
	call("another takes the place of the provider that the question is about", 1, false)
	owners.answers = nil
	call("and is asked about itself", 1, true)
}

// A rule that allows a command allows it where the session's shell begins. Elsewhere it is another
// program, and a denial holds everywhere.
func TestShellRulesKnowTheDirectory(t *testing.T) {
	s := &session{cwd: "/p", o: &Options{Permissions: configs.Permissions{
		Shell: configs.Deny, AllowCommands: []string{"./check.sh", "make test", "cd"},
		DenyCommands: []string{"rm"},
	}}}
	for _, tt := range []struct {
		command gateway.ShellCommand
		want    bool
	}{
		{gateway.ShellCommand{Text: "./check.sh"}, true},
		{gateway.ShellCommand{Text: "./check.sh", Dir: "/p/sub"}, false},
		{gateway.ShellCommand{Text: "make test", Dir: "/p/sub"}, true},
		{gateway.ShellCommand{Text: "make test", Dir: "/p/$(rm x)"}, false},
		{gateway.ShellCommand{Text: "make test; rm x", Dir: "/p/sub"}, false},
		{gateway.ShellCommand{Text: `rm "x`, Dir: `/p/ A="`}, false},
	} {
		denial, mustAsk := s.policy(&rpc.PermissionRequestShell{FullCommandText: tt.command.Line()})
		if got := denial == "" && !mustAsk; got != tt.want {
			t.Errorf("%+v: allowed is %t (%s), want %t", tt.command, got, denial, tt.want)
		}
	}
}
