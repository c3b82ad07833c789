//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tapgw/internal/scriptmodel"
)

// A guide is a document that a person follows block by block, with what the model does at each
// step: a prompt that holds a text makes it call a tool, or answer.
type guide struct {
	doc   string
	model []step
}

var guides = []guide{
	{"../README.md", nil},
	{"skills.md", nil},
	{"getting-started.md", []step{
		{prompt: "Say hello", answer: "Hello, nice to meet you!"},
		{prompt: "Greet Ada", tool: "greet_hello", args: `{"name":"Ada"}`, answer: "Hello, Ada!"},
		{prompt: "build of main is red",
			answer: "I would look at the log of the failed job first."},
	}},
	{"providers.md", nil}, // other tests run its programs
	{"goals.md", []step{
		{prompt: "Write the report.", answer: "The report is written. The goal is met."},
	}},
	{"evals.md", []step{
		{prompt: "weather in Oslo", tool: "get_weather", args: `{"city":"Oslo"}`,
			answer: "Rain, and 12 degrees."},
	}},
	{"tutorials/sources.md", []step{
		{prompt: "x undeclared", answer: "The build is red: x is not declared in main.c."},
		{prompt: "got 41, want 42", answer: "The sum is off by one: the loop starts at 1."},
	}},
	{"tutorials/providers.md", []step{
		{prompt: "is the release out?", tool: "chat_reply",
			args:   `{"text":"Yes: 1.4.0 is out since this morning."}`,
			answer: "I answered."},
	}},
}

// step is what the scripted model does with a prompt.
type step struct{ prompt, tool, args, answer string }

// TestGuides runs every shell block of the guides in order, as a reader would, on
// the real runtime with a scripted model. A block of text after one is what it
// prints; "…" in it stands for anything.
func TestGuides(t *testing.T) {
	t.Parallel()
	for _, g := range guides {
		t.Run(strings.TrimSuffix(filepath.Join("docs", g.doc), ".md"), func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			h.guideModel(g.model)
			h.follow(filepath.Join(repo, "docs", g.doc))
		})
	}
}

// guideModel makes sessions use a model that follows the steps.
func (h *home) guideModel(steps []step) {
	h.t.Helper()
	m := model(h.t, func(r *scriptmodel.Request) scriptmodel.Reply {
		asked := scriptmodel.Prompt(r.LastUser())
		for _, s := range steps {
			switch {
			case !strings.Contains(asked, s.prompt):
			case s.tool != "" && r.Messages[len(r.Messages)-1].Role != "tool":
				return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: s.tool,
					Args: s.args}}}
			default:
				return scriptmodel.Reply{Text: s.answer}
			}
		}
		return scriptmodel.Reply{Text: "You said: " + asked}
	})
	config := fmt.Sprintf(
		"listen = \"127.0.0.1:0\"\n[copilot]\nprovider_url = %q\nmodels = [%q]\n",
		m.URL,
		scriptmodel.ModelID,
	)
	dir := h.path(".config", "tapgw")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tapgw.toml"), []byte(config), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(repo, ".runtime", "node_modules"),
		h.path("node_modules")); err != nil {
		h.t.Fatal(err)
	}
}

// guideBlocks finds the blocks of a document: the language, and a remark with its text.
//
//	```sh                  runs
//	```sh wait: CONDITION  runs once the condition holds
//	```sh not run: WHY     does not run
//	```sh list             does not run: each line is an example that stands alone
var guideBlocks = regexp.MustCompile(
	"(?ms)^```(\\w+)(?: (not run|wait|list)(?:: ([^\n]*))?)?\n(.*?)^```$")

// follow runs a guide in one shell and compares what its blocks print.
func (h *home) follow(doc string) {
	h.t.Helper()
	text, err := os.ReadFile(doc)
	if err != nil {
		h.t.Fatal(err)
	}
	const mark = "\x1d"
	var script strings.Builder
	script.WriteString("set -eu\ntrap 'tapgw stop >&2 || true' EXIT\n")
	var want []string // what each block prints; "" for anything
	for _, b := range guideBlocks.FindAllStringSubmatch(string(text), -1) {
		language, remark, why, body := b[1], b[2], b[3], b[4]
		switch {
		case language == "text" && len(want) > 0:
			want[len(want)-1] = body
		case strings.HasSuffix(doc, "docs/providers.md") && language != "sh":
		case language != "sh":
			h.t.Fatalf("%s has a block of %s, want sh, or text for what it prints", doc, language)
		case remark == "" || remark == "wait":
			if remark == "wait" {
				fmt.Fprintf(&script,
					"n=0; until %s; do n=$((n+1)); [ $n -lt 600 ]; sleep 0.1; done\n", why)
			}
			script.WriteString("printf '" + mark + "'\n" + body)
			want = append(want, "")
		}
	}
	h.env = append(h.env, "PATH="+filepath.Dir(tapgw)+":"+os.Getenv("PATH"))
	r := h.run("bash", "-c", strings.ReplaceAll(script.String(), "8123", freePort(h.t)))
	if r.code != 0 {
		h.t.Fatalf("%s: exit code %d, want 0\n%s\n%s", doc, r.code, r.stdout, r.stderr)
	}
	for i, got := range strings.Split(r.stdout, mark)[1:] {
		if want[i] != "" && !printed(want[i]).MatchString(strings.TrimSuffix(got, "\n")+"\n") {
			h.t.Errorf("%s: block %d prints\n%s\nwant\n%s", doc, i+1, got, want[i])
		}
	}
}

// freePort finds a port for the one that a guide names.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// printed matches what a guide says that a block prints.
func printed(want string) *regexp.Regexp {
	expr := regexp.QuoteMeta(want)
	expr = strings.ReplaceAll(expr, "…", ".*?")
	return regexp.MustCompile("(?s)^" + regexp.MustCompile(` +`).ReplaceAllString(expr, " +") + "$")
}
