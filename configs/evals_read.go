package configs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tapgw/internal/match"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// Bounds of a case, so that a wrong number does not run for a week.
const (
	maxEvalRepeat = 1000
	maxEvalTime   = 24 * time.Hour
	maxEvalTurns  = 10_000
	maxEvalCount  = 1_000_000
	maxEvalDelay  = time.Hour
)

// ParseEvalCase reads the text of a case's file, whose name without .toml is the case's id. With faults, the case has
// only its id and file.
func ParseEvalCase(file string, data []byte) (EvalCase, Faults) {
	c := EvalCase{
		ID: strings.TrimSuffix(filepath.Base(file), providerSuffix), File: file,
		Repeat: 1, MinRate: 1, Budget: EvalBudget{Time: 5 * time.Minute, Turns: 20, Calls: 200},
	}
	doc, t := open(file, data)
	if t == nil {
		return EvalCase{ID: c.ID, File: file}, doc.faults
	}
	if !providerName.MatchString(c.ID) {
		doc.at(0, fmt.Sprintf("the file's name %q is the case's id: %s", c.ID, nameRule))
	}
	c.read(t)
	if len(doc.faults) > 0 {
		return EvalCase{ID: c.ID, File: file}, doc.sorted()
	}
	return c, nil
}

func (c *EvalCase) read(t *table) {
	t.str("title", &c.Title, oneLine)
	t.str("category", &c.Category, oneLine)
	var prompt string
	t.str("prompt", &prompt, isText)
	t.list("prompts", &c.Prompts, func(_ []string, s string) error { return isText(s) })
	switch {
	case t.has("prompt") && t.has("prompts"):
		t.fault("prompts", "excludes prompt: write one of them")
	case t.has("prompt"):
		c.Prompts = []string{prompt}
	case t.isGood("prompts") && len(c.Prompts) == 0:
		t.fault("prompt", "is missing: what the session is asked")
	}
	t.integer("repeat", &c.Repeat, 1, maxEvalRepeat)
	t.rate("min_rate", &c.MinRate)
	t.duration("wait", &c.Wait, 0, maxEvalDelay)
	if b := t.table("budget"); b != nil {
		b.duration("time", &c.Budget.Time, time.Second, maxEvalTime)
		b.integer("turns", &c.Budget.Turns, 1, maxEvalTurns)
		b.integer("calls", &c.Budget.Calls, 0, maxEvalCount)
		b.rejectUnknown()
	}
	t.strings("workspace", &c.Workspace, isBelowWorkspace)
	c.checkPaths(t)
	names := map[string]bool{}
	t.tables("provider", nil, func(sub *table) {
		p := readEvalProvider(sub, len(c.Prompts))
		if names[p.Name] {
			sub.fault("name", "%q stands there twice", p.Name)
		}
		names[p.Name] = true
		c.Providers = append(c.Providers, p)
	})
	c.readExpected(t.table("expect"))
	t.tables("observation", nil, func(sub *table) { c.Observations = append(c.Observations, readClaim(sub, false)) })
	t.tables("prohibited", nil, func(sub *table) { c.Prohibited = append(c.Prohibited, readClaim(sub, true)) })
	c.readJudge(t)
	t.rejectUnknown()
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

// readExpected reads [expect].
func (c *EvalCase) readExpected(t *table) {
	if t == nil {
		return
	}
	t.list("order", &c.Order, func(_ []string, s string) error { return isText(s) })
	t.tables("call", nil, func(sub *table) { c.Calls = append(c.Calls, readExpectedCall(sub)) })
	t.tables("file", nil, func(sub *table) {
		f := ExpectedFile{Exists: true}
		sub.str("path", &f.Path, isBelowWorkspace)
		sub.need("path", "the file, relative to the workspace")
		sub.boolean("exists", &f.Exists)
		sub.str("contains", &f.Contains, isText)
		f.Pattern = sub.pattern("pattern")
		sub.boolean("unchanged", &f.Unchanged)
		if _, known := c.Workspace[filepath.Clean(f.Path)]; f.Unchanged && !known {
			sub.fault("unchanged", "%q is no file of [workspace]", f.Path)
		}
		if !f.Exists && (f.Contains != "" || f.Pattern != nil || f.Unchanged) {
			sub.fault("exists", "false excludes what the file must hold")
		}
		sub.rejectUnknown()
		c.Files = append(c.Files, f)
	})
	t.tables("stream", nil, func(sub *table) {
		s := ExpectedStream{}
		sub.str("stream", &s.Stream, isText)
		sub.need("stream", "its name, or NAME@PROVIDER")
		sub.str("contains", &s.Contains, isText)
		s.Pattern = sub.pattern("pattern")
		s.Min, s.Max = sub.bounds()
		sub.rejectUnknown()
		c.Streams = append(c.Streams, s)
	})
	t.rejectUnknown()
}

func readExpectedCall(t *table) (c ExpectedCall) {
	t.str("tool", &c.Tool, isText)
	t.need("tool", "its name, in which * stands for any text")
	c.Args = t.pattern("args")
	t.str("outcome", &c.Outcome, oneOf(CallOK, CallFailed, CallDenied))
	t.str("after", &c.After, isText)
	c.Min, c.Max = t.bounds()
	t.rejectUnknown()
	return c
}

func readClaim(t *table, isProhibited bool) (c EvalClaim) {
	t.str("text", &c.Text, oneLine)
	t.need("text", "the claim, for people and the judge")
	c.Pattern = t.pattern("pattern")
	if isProhibited {
		t.str("unless_call", &c.UnlessCall, isText)
	}
	t.rejectUnknown()
	return c
}

func (c *EvalCase) readJudge(root *table) {
	t := root.table("judge")
	if t == nil {
		return
	}
	j := &c.Judge
	t.str("rubric", &j.Rubric, isText)
	t.list("pass", &j.Pass, func(_ []string, s string) error { return isText(s) })
	t.list("fail", &j.Fail, func(_ []string, s string) error { return isText(s) })
	t.rejectUnknown()
	if len(root.doc.faults) == 0 && !c.NeedsJudge() {
		root.fault("judge", "has nothing to judge: write a rubric, or a claim without a pattern")
	}
}

// readEvalProvider reads a provider of a case with so many prompts.
func readEvalProvider(t *table, prompts int) (p EvalProvider) {
	t.str("name", &p.Name, func(s string) error {
		if !protocol.ValidName(s) {
			return errors.New(nameRule)
		}
		return nil
	})
	t.need("name", "what the session knows it by")
	t.list("command", &p.Command, isArgument)
	if t.isGood("command") && t.has("command") && len(p.Command) == 0 {
		t.fault("command", "is empty: name a program and its arguments")
	}
	for _, key := range []string{"context", "tool", "gate", "push"} {
		if t.has("command") && t.has(key) {
			t.fault(key, "excludes command: the program says itself what it offers")
		}
	}
	t.str("context", &p.Context, isText)
	t.tables("tool", nil, func(sub *table) { p.Tools = append(p.Tools, readEvalTool(sub)) })
	t.tables("gate", nil, func(sub *table) {
		g := EvalGate{}
		sub.str("tool", &g.Tool, isText)
		sub.need("tool", "which calls it decides about; * is all")
		sub.pattern("args")
		g.Args, _ = sub.values["args"].(string)
		sub.str("decision", &g.Decision, oneOf(GateAllow, GateDeny, GateSilent))
		sub.need("decision", "allow, deny or silent")
		sub.str("reason", &g.Reason, isText)
		sub.duration("delay", &g.Delay, 0, maxEvalDelay)
		sub.rejectUnknown()
		p.Gates = append(p.Gates, g)
	})
	t.tables("push", nil, func(sub *table) { p.Pushes = append(p.Pushes, readEvalPush(sub, prompts)) })
	t.rejectUnknown()
	return p
}

func readEvalPush(t *table, prompts int) (p EvalPush) {
	p.Level = "surface"
	t.str("text", &p.Text, isText)
	t.str("prompt", &p.Prompt, isText)
	if !t.has("text") && !t.has("prompt") {
		t.fault("text", "is missing: what the event says")
	}
	t.str("stream", &p.Stream, isText)
	t.str("level", &p.Level, oneOf(eventLevels...))
	t.str("after_call", &p.AfterCall, isText)
	t.integer("after_turn", &p.AfterTurn, 1, maxEvalTurns)
	if t.has("after_call") && t.has("after_turn") {
		t.fault("after_turn", "excludes after_call: an event has one moment")
	}
	if prompts > 0 && p.AfterTurn > prompts {
		t.fault("after_turn", "%d never comes: the case has %s", p.AfterTurn, visible.Count(prompts, "prompt"))
	}
	t.duration("delay", &p.Delay, 0, maxEvalDelay)
	t.rejectUnknown()
	return p
}

func readEvalTool(t *table) (tool EvalTool) {
	tool.Parameters = `{"type":"object"}`
	t.str("name", &tool.Name, func(s string) error {
		if !protocol.ValidToolName(s) {
			return errors.New("must be 1 to 64 letters, digits, dashes and underscores")
		}
		return nil
	})
	t.need("name", "what the model calls it by")
	t.str("description", &tool.Description, isText)
	t.need("description", "what it tells the model")
	t.str("parameters", &tool.Parameters, func(s string) error {
		if !json.Valid([]byte(s)) {
			return errors.New("is not JSON")
		}
		_, err := protocol.CompileSchema(protocol.Raw(s))
		return err
	})
	t.duration("timeout", &tool.Timeout, time.Millisecond, maxEvalDelay)
	t.tables("answer", nil, func(sub *table) { tool.Answers = append(tool.Answers, readEvalAnswer(sub)) })
	t.rejectUnknown()
	return tool
}

func readEvalAnswer(t *table) (a EvalAnswer) {
	a.Args = t.pattern("args")
	t.str("text", &a.Text, nil)
	t.str("json", &a.JSON, func(s string) error {
		if !json.Valid([]byte(s)) {
			return errors.New("is not JSON")
		}
		return nil
	})
	t.str("error", &a.Error, isText)
	t.str("code", &a.Code, oneOf(toolCodes...))
	t.duration("delay", &a.Delay, 0, maxEvalDelay)
	var has []string
	for _, key := range []string{"text", "json", "error"} {
		if t.has(key) {
			has = append(has, key)
		}
	}
	switch {
	case len(has) == 0:
		t.fault("text", "is missing, or json or error: what the call gets")
	case len(has) > 1:
		t.fault(has[1], "excludes %s: a call gets one of them", has[0])
	case t.has("code") && a.Error == "":
		t.fault("code", "goes with error")
	}
	t.rejectUnknown()
	return a
}

// toolCodes are the codes that a tool's error may have.
var toolCodes = []string{"NOT_FOUND", "TIMEOUT", "CANCELLED", "UNAUTHORIZED", "INTERNAL"}

// ParseEvalVariant reads the text of a variant's file. With faults, the variant has only its name and file.
func ParseEvalVariant(file string, data []byte) (EvalVariant, Faults) {
	v := EvalVariant{Name: strings.TrimSuffix(filepath.Base(file), providerSuffix), File: file}
	doc, t := open(file, data)
	if t == nil {
		return EvalVariant{Name: v.Name, File: file}, doc.faults
	}
	t.str("title", &v.Title, oneLine)
	notEmpty := func(name string) error { return isText(name) }
	t.strings("tools", &v.Tools, notEmpty)
	t.strings("contexts", &v.Contexts, notEmpty)
	t.str("prompt", &v.Prompt, func(s string) error {
		if !strings.Contains(s, EvalPromptPlace) {
			return errors.New("must have {prompt}, in whose place the case's prompt comes")
		}
		return nil
	})
	t.rejectUnknown()
	if len(doc.faults) == 0 && len(v.Tools) == 0 && len(v.Contexts) == 0 && v.Prompt == "" {
		doc.at(0, "changes nothing: write [tools], [contexts] or prompt")
	}
	if len(doc.faults) > 0 {
		return EvalVariant{Name: v.Name, File: file}, doc.sorted()
	}
	return v, nil
}

// need adds a fault if a key is missing.
func (t *table) need(key, what string) {
	if !t.has(key) {
		t.fault(key, "is missing: %s", what)
	}
}

// pattern reads a JavaScript regular expression; nil without the key.
func (t *table) pattern(key string) (p *match.Pattern) {
	var text string
	t.str(key, &text, func(s string) (err error) {
		p, err = match.Compile(s)
		return err
	})
	return p
}

// bounds reads min and max of a count: at least one without both, and any number up to max without min if max is 0.
func (t *table) bounds() (least, most int) {
	least, most = 1, -1
	t.integer("max", &most, 0, maxEvalCount)
	if most == 0 {
		least = 0
	}
	t.integer("min", &least, 0, maxEvalCount)
	if most >= 0 && least > most {
		t.fault("min", "%d is more than max, %d", least, most)
	}
	return least, most
}

// rate reads a part of a whole.
func (t *table) rate(key string, into *float64) {
	v, ok := t.lookup(key)
	if !ok {
		return
	}
	n, isFloat := v.(float64)
	if whole, isInt := v.(int64); isInt {
		n, isFloat = float64(whole), true
	}
	switch {
	case !isFloat:
		t.mismatch(key, "a number such as 0.8", v)
	case !(n > 0 && n <= 1):
		t.fault(key, "%v is not above 0 and at most 1", n)
	default:
		*into = n
	}
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

// isBelowWorkspace refuses paths that lead out of a workspace, and those that have two forms.
func isBelowWorkspace(path string) error {
	switch {
	case !filepath.IsLocal(path) || strings.ContainsAny(path, "\\\x00"):
		return fmt.Errorf("%q leads out of the workspace, or is no path with /", path)
	case path == "." || filepath.Clean(path) != path:
		return fmt.Errorf("%q is not the short form of a file's path", path)
	}
	return nil
}
