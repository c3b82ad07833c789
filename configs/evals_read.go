package configs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/internal/match"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// ParseEvalCase reads the text of a case's file, whose name without .toml is the case's id. With
// faults, the case has only its id and file.
func ParseEvalCase(file string, data []byte) (EvalCase, Faults) {
	id := strings.TrimSuffix(filepath.Base(file), providerSuffix)
	doc, t := open(file, data)
	if t == nil {
		return EvalCase{ID: id, File: file}, doc.faults
	}
	if !providerName.MatchString(id) {
		doc.at(0, fmt.Sprintf("the file's name %q is the case's id: %s", id, nameRule))
	}
	c := defaults[EvalCase]()
	c.ID, c.File = id, file
	if t.read(&c); len(doc.faults) > 0 {
		return EvalCase{ID: id, File: file}, doc.sorted()
	}
	return c, nil
}

func (c *EvalCase) check(t *table) {
	switch {
	case t.has("prompt") && t.has("prompts"):
		t.fault("prompts", "excludes prompt: write one of them")
	case t.has("prompt"):
		c.Prompts = []string{c.Prompt}
	case t.isGood("prompts") && len(c.Prompts) == 0:
		t.fault("prompt", "is missing: what the session is asked")
	}
	c.checkPaths(t)
	names := map[string]bool{}
	for i, p := range c.Providers {
		at := fmt.Sprintf("provider.[%d]", i)
		if names[p.Name] {
			t.fault(at+".name", "%q stands there twice", p.Name)
		}
		names[p.Name] = true
		for j, push := range p.Pushes {
			if n := len(c.Prompts); n > 0 && push.AfterTurn > n {
				t.fault(fmt.Sprintf("%s.push.[%d].after_turn", at, j),
					"%d never comes: the case has %s", push.AfterTurn, visible.Count(n, "prompt"))
			}
		}
	}
	for i, f := range c.Files {
		if _, known := c.Workspace[filepath.Clean(f.Path)]; f.Unchanged && !known {
			t.fault(fmt.Sprintf("expect.file.[%d].unchanged", i), "%q is no file of [workspace]",
				f.Path)
		}
	}
	if t.has("judge") && len(t.doc.faults) == 0 && !c.NeedsJudge() {
		t.fault("judge", "has nothing to judge: write a rubric, or a claim without a pattern")
	}
}

// checkPaths adds a fault for a file of the workspace that another one needs as a directory.
func (c *EvalCase) checkPaths(t *table) {
	for _, path := range slices.Sorted(maps.Keys(c.Workspace)) {
		if !filepath.IsLocal(path) {
			continue // it has a fault
		}
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			if _, isFile := c.Workspace[dir]; isFile {
				t.fault("workspace", "%q is a file, and a directory for %q", dir, path)
			}
		}
	}
}

func (f *ExpectedFile) check(t *table) {
	if !f.Exists && (f.Contains != "" || f.Pattern != nil || f.Unchanged) {
		t.fault("exists", "false excludes what the file must hold")
	}
}

// check makes the least number 0 if the largest one is 0 and stands alone.
func (n *ExpectedCount) check(t *table) {
	if n.Max == 0 && !t.has("min") {
		n.Min = 0
	}
	if n.Max >= 0 && n.Min > n.Max {
		t.fault("min", "%d is more than max, %d", n.Min, n.Max)
	}
}

func (p *EvalProvider) check(t *table) {
	if t.isGood("command") && t.has("command") && len(p.Command) == 0 {
		t.fault("command", "is empty: name a program and its arguments")
	}
	for _, key := range []string{"context", "tool", "gate", "push"} {
		if t.has("command") && t.has(key) {
			t.fault(key, "excludes command: the program says itself what it offers")
		}
	}
}

func (p *EvalPush) check(t *table) {
	if !t.has("text") && !t.has("prompt") {
		t.fault("text", "is missing: what the event says")
	}
	if t.has("after_call") && t.has("after_turn") {
		t.fault("after_turn", "excludes after_call: an event has one moment")
	}
}

func (a *EvalAnswer) check(t *table) {
	switch has := t.present("text", "json", "error"); {
	case len(has) == 0:
		t.fault("text", "is missing, or json or error: what the call gets")
	case len(has) > 1:
		t.fault(has[1], "excludes %s: a call gets one of them", has[0])
	case t.has("code") && a.Error == "":
		t.fault("code", "goes with error")
	}
}

// ParseEvalVariant reads the text of a variant's file. With faults, the variant has only its name
// and file.
func ParseEvalVariant(file string, data []byte) (EvalVariant, Faults) {
	v := EvalVariant{Name: strings.TrimSuffix(filepath.Base(file), providerSuffix), File: file}
	doc, t := open(file, data)
	if t == nil {
		return v, doc.faults
	}
	read := v
	t.read(&read)
	if len(doc.faults) == 0 && len(read.Tools) == 0 && len(read.Contexts) == 0 &&
		read.Prompt == "" {
		doc.at(0, "changes nothing: write [tools], [contexts] or prompt")
	}
	if len(doc.faults) > 0 {
		return v, doc.sorted()
	}
	return read, nil
}

func isText(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("must not be empty")
	}
	return nil
}

func oneLine(s string) error {
	if strings.ContainsAny(s, "\r\n") {
		return errors.New("must be one line")
	}
	return isText(s)
}

func isJSON(s string) error {
	if !json.Valid([]byte(s)) {
		return errors.New("is not JSON")
	}
	return nil
}

func isSchema(s string) error {
	if err := isJSON(s); err != nil {
		return err
	}
	_, err := protocol.CompileSchema(protocol.Raw(s))
	return err
}

func isPattern(s string) error {
	_, err := match.Compile(s)
	return err
}

// isBelowWorkspace refuses paths that lead out of a workspace, and paths that are not in their
// shortest form.
func isBelowWorkspace(path string) error {
	switch {
	case !filepath.IsLocal(path) || strings.ContainsAny(path, "\\\x00"):
		return fmt.Errorf("%q leads out of the workspace, or is no path with /", path)
	case path == "." || filepath.Clean(path) != path:
		return fmt.Errorf("%q is not the short form of a file's path", path)
	}
	return nil
}
