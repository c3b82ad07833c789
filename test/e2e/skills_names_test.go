//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/skills"
)

var skillBlocks = regexp.MustCompile("(?ms)^ *```(\\w+)\n(.*?)^ *```$")

// TestSkillsNameWhatExists holds each tool call of a skill against the schema of that tool, each
// command against its help, and each provider file against tapctl sources try.
func TestSkillsNameWhatExists(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("tapgw.toml", "[tap]\ntools = true\n")
	h.serve("--config", h.path("tapgw.toml"))
	tools := map[string]*protocol.Schema{}
	session := h.local()
	h.waitTool(session, "tap_post")
	for _, tool := range decode[[]adminapi.Tool](t, h.tapctl("tools", "--json")) {
		schema, err := protocol.CompileSchema(protocol.Raw(tool.Parameters))
		if err != nil {
			t.Fatal(err)
		}
		tools[tool.Name] = schema
	}
	for _, s := range skills.All() {
		calls := 0
		for _, block := range skillBlocks.FindAllStringSubmatch(s.Text, -1) {
			switch language, text := block[1], block[2]; language {
			case "text":
				for line := range strings.Lines(text) {
					name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
					calls++
					if err := checkCall(tools, name, args); err != nil {
						t.Errorf("%s: %s: %v", s.Name, line, err)
					}
				}
			case "sh":
				calls++
				h.checkCommands(s.Name, text)
			case "toml":
				h.put("work/loop.toml", text)
				h.tapctl("sources", "try", h.path("work", "loop.toml"))
			default:
				t.Errorf("%s: has a block of %s, want text, sh or toml", s.Name, language)
			}
		}
		if calls < 4 {
			t.Errorf("%s: has %d calls and blocks of commands, want at least 4", s.Name, calls)
		}
	}
}

// checkCall returns an error if a tool does not exist, or does not know an argument.
func checkCall(tools map[string]*protocol.Schema, name, args string) error {
	schema := tools[name]
	if schema == nil {
		return fmt.Errorf("there is no tool %s", name)
	}
	return schema.Check(protocol.Raw(args))
}

// checkCommands finds each command and its flags in the help.
func (h *home) checkCommands(skill, text string) {
	h.t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(text), skill)
	if err != nil {
		h.t.Errorf("%s: %v in %s", skill, err, text)
		return
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok {
			return true
		}
		var words []string
		for _, w := range call.Args {
			var b strings.Builder
			if err := syntax.NewPrinter().Print(&b, w); err != nil {
				h.t.Error(err)
			}
			words = append(words, b.String())
		}
		h.checkCommand(skill, words)
		last := words[len(words)-1]
		// a prompt that names a command
		if _, nested, ok := strings.Cut(strings.Trim(last, "'"), " run: "); ok {
			h.checkCommands(skill, nested)
		}
		return true
	})
}

func (h *home) checkCommand(skill string, words []string) {
	h.t.Helper()
	program, ok := map[string]string{"tapgw": tapgw, "tapctl": tapctl,
		"lsclient": h.lsclient()}[words[0]]
	if !ok {
		if words[0] != "cd" {
			h.t.Errorf("%s: %q is no command of ours, want none in a skill", skill, words)
		}
		return
	}
	help := h.run(program, "--help").stdout
	path := []string{program}
	for _, w := range words[1:] {
		if !regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(w) + `(,.*)?  `).MatchString(help) {
			break
		}
		path = append(path, w)
		help = h.run(program, append(slices.Clone(path[1:]), "--help")...).stdout
	}
	if len(path) == 1 {
		h.t.Errorf("%s: %q: there is no such command", skill, words)
	}
	for _, w := range words[len(path):] {
		if w == "--" {
			return
		}
		flag, _, _ := strings.Cut(w, "=")
		if strings.HasPrefix(flag, "--") && !strings.Contains(help, flag+" ") {
			h.t.Errorf("%s: %q: there is no flag %s", skill, words, flag)
		}
	}
}

// lsclient builds lsclient, once for each home.
func (h *home) lsclient() string {
	h.t.Helper()
	file := h.path("lsclient")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	build := exec.Command("go", "build", "-o", file, "./cmd/lsclient")
	build.Dir = filepath.Clean(repo)
	if out, err := build.CombinedOutput(); err != nil {
		h.t.Fatalf("building lsclient: %v\n%s", err, out)
	}
	return file
}
