//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"tapgw/internal/scriptmodel"
)

// template drops the sample of a template as a provider file. Its paths are relative to the
// repository.
func (h *home) template(name string, replacements ...string) {
	h.t.Helper()
	sample, err := os.ReadFile(filepath.Join(repo, "configs", "providers", name+".toml.sample"))
	if err != nil {
		h.t.Fatal(err)
	}
	text := strings.NewReplacer(append(replacements, `"python3"`,
		fmt.Sprintf("%q", systemPython))...).
		Replace(string(sample))
	h.put("providers/"+name+".toml", fmt.Sprintf("%s\ncwd = %q\n", text, repo))
}

// scanned puts a SARIF file of gosec into the session's directory, with these results.
func (h *home) scanned(results ...string) {
	h.t.Helper()
	h.put("work/gosec.sarif", `{"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "gosec", "rules": [
		{"id": "G202", "defaultConfiguration": {"level": "error"}, "help": {"text": "Use a prepared statement."}}]}},
		"results": [`+strings.Join(results, ",")+`]}]}`)
}

// finding is a result of a scanner.
func finding(rule, level, file string, line int, message string) string {
	return fmt.Sprintf(`{"ruleId": %q, "level": %q, "message": {"text": %q}, "locations": [{"physicalLocation":
		{"artifactLocation": {"uri": %q}, "region": {"startLine": %d}}}]}`, rule, level, message, file, line)
}

// triager is a model that looks at the finding that it is told of, and decides about it.
func triager(r *scriptmodel.Request) scriptmodel.Reply {
	id := regexp.MustCompile(`- ([0-9a-f]{10}) `).FindStringSubmatch(r.LastUser())
	last := r.Messages[len(r.Messages)-1]
	switch {
	case id != nil && last.Role == "user":
		args := fmt.Sprintf(`{"id": %q}`, id[1])
		return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: "sast_show", Args: args}}}
	case id != nil && strings.Contains(last.Text, `>     2 q := "SELECT " + name`):
		args := fmt.Sprintf(
			`{"ids": [%q], "verdict": "false_positive", "reason": "The name is a constant."}`,
			id[1],
		)
		return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: "sast_triage",
			Args: args}}}
	}
	return scriptmodel.Calls(r)
}

// TestSASTTriage starts the template by its sample. A scanner's file wakes the model, which triages
// the finding; the verdict and what was announced outlive the gateway.
func TestSASTTriage(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, triager)
	if err := os.WriteFile(h.path("work", "db.go"), []byte("// db\nq := \"SELECT \" + name\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(h.path("tapgw.toml"), h.path("work", "outside.go")); err != nil {
		t.Fatal(err)
	}
	g := h.serveFiles()
	h.template("sast-triage", "SAST_SURFACE", `SAST_EVERY = "0.1", SAST_SURFACE`)
	session := h.copilot(m)
	h.waitTool(session, "sast_list")

	sql := finding("G202", "error", "db.go", 2, "SQL string concatenation")
	h.scanned(sql)
	third := request(t, m, 3)
	prompt := third.LastUser()
	for _, want := range []string{"[from provider sast-triage]", "not instructions",
		"gosec G202 at db.go:2"} {
		if !strings.Contains(prompt, want) {
			t.Errorf("the model was told %q, want %q in it", prompt, want)
		}
	}
	if got := third.LastResult(); !strings.Contains(got, "1 now false_positive") {
		t.Errorf("sast_triage answers %q, want %q in it", got, "1 now false_positive")
	}
	h.waitIdle(session)

	g.stop()
	h.serve("--config", h.path("tapgw.toml"))
	session = h.local()
	h.waitTool(session, "sast_list")
	warning := finding("G304", "warning", "outside.go", 1, "File inclusion")
	h.scanned(sql, warning)
	h.waitTimeline(session, "gosec G304 at outside.go:1: File inclusion")
	listed := h.call(session, "sast_list", `{"state":"false_positive"}`)
	if !strings.Contains(listed, "gosec G202") ||
		!strings.Contains(listed, "The name is a constant.") {
		t.Errorf("after a restart the triaged findings are %q, want G202 with its reason", listed)
	}
	id := regexp.MustCompile(`- ([0-9a-f]{10}) `).FindStringSubmatch(h.call(session, "sast_list",
		"{}"))
	if id == nil {
		t.Fatal("sast_list lists no open finding, want G304")
	}
	if got := h.call(session, "sast_show", fmt.Sprintf(`{"id":%q}`, id[1])); !strings.Contains(got,
		"leads out of") {
		t.Errorf("sast_show of a link out of the workspace answers %q, want %q in it", got,
			"leads out of")
	}
	h.scanned()
	h.waitTimeline(session, "fixed: "+id[1])
	if lines := h.timeline(session, "G202"); len(lines) > 0 {
		t.Errorf(
			"after a restart the timeline has %+v, want nothing about a finding that was announced",
			lines)
	}
	if got := h.call(session, "sast_summary", "{}"); !strings.Contains(got, "all: 2 fixed") {
		t.Errorf("the summary is %q, want %q in it", got, "all: 2 fixed")
	}

	// On its own it ends as a provider should.
	h.removeFile("providers/sast-triage.toml")
	h.waitBound(0)
	h.tapctl("sessions", "stop", session) // the name is the file's there
	session = h.local()
	p := h.interpret(filepath.Join(repo, "providers", "templates", "sast-triage", "sast_triage.py"),
		"PYTHONPATH="+filepath.Join(repo, "providers", "python"), "PYTHONDONTWRITEBYTECODE=1",
		"TAP_PROVIDER_TOKEN="+h.read(".admin-token"))
	h.waitTool(session, "sast_list")
	p.signal(syscall.SIGTERM)
	if code := p.wait(patience); code != 0 {
		t.Errorf("it ended with code %d on SIGTERM, want 0", code)
	}
	eventually(t, patience, func() error { return connections(h, 0) })
}
