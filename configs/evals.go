package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tapgw/internal/match"
)

// EvalCase is a case of tapctl evals: what a session is asked, what it has for it, and what must be true afterwards.
// The file's name without .toml is the case's id. docs/evals.md describes each key.
type EvalCase struct {
	ID, File        string
	Title, Category string
	Prompts         []string
	Repeat          int           // how often the case is run
	MinRate         float64       // how much of the runs must pass, above 0 and at most 1
	Wait            time.Duration // how long after the last turn the session is still watched
	Budget          EvalBudget
	Workspace       map[string]string // texts of the files that the session finds, by path
	Providers       []EvalProvider

	Order        []string // tools whose calls come in this order, others between them
	Calls        []ExpectedCall
	Files        []ExpectedFile
	Streams      []ExpectedStream
	Observations []EvalClaim
	Prohibited   []EvalClaim
	Judge        EvalJudge
}

// EvalBudget says how much a run may use. A run that uses more is interrupted, and has failed.
type EvalBudget struct {
	Time  time.Duration
	Turns int // prompts that the session gets, those of events included
	Calls int // of tools
}

// EvalProvider is a provider that a case gives its sessions: what it offers and what it answers, or a program that
// says so itself.
type EvalProvider struct {
	Name    string
	Command []string // a program that binds the session under Name; all below is empty then
	Context string   // added to each prompt
	Tools   []EvalTool
	Gates   []EvalGate
	Pushes  []EvalPush
}

// EvalTool is a tool of an [EvalProvider].
type EvalTool struct {
	Name, Description string
	Parameters        string // a JSON Schema
	Timeout           time.Duration
	Answers           []EvalAnswer
}

// EvalAnswer is what a call of an [EvalTool] gets: the first answer in the file that fits the call's arguments and was
// not given yet, else the last one that fits.
type EvalAnswer struct {
	Args        *match.Pattern // nil: fits all
	Text, JSON  string         // one of them, or Error
	Error, Code string
	Delay       time.Duration
}

// EvalGate is a rule of an [EvalProvider] that decides about calls.
type EvalGate struct {
	Tool, Args string // as of a provider's rule
	Decision   string // GateAllow, GateDeny or GateSilent
	Reason     string
	Delay      time.Duration
}

// Decisions of an [EvalGate]. A silent one never answers.
const (
	GateAllow  = "allow"
	GateDeny   = "deny"
	GateSilent = "silent"
)

// EvalPush is an event that an [EvalProvider] pushes once: with the first prompt, or after the first call of a tool, or
// after a turn.
type EvalPush struct {
	Text, Prompt, Stream, Level string
	AfterCall                   string // a tool's name
	AfterTurn                   int    // from 1
	Delay                       time.Duration
}

// ExpectedCall says how many calls of a tool there must be, with these arguments and this outcome.
type ExpectedCall struct {
	Tool    string         // a name, with *
	Args    *match.Pattern // nil: any
	Outcome string         // CallOK, CallFailed, CallDenied, or "" for any
	After   string         // only calls after the first call of this tool count
	Min     int
	Max     int // -1: no limit
}

// Outcomes of an [ExpectedCall]. A call that was denied has failed, too.
const (
	CallOK     = "ok"
	CallFailed = "failed"
	CallDenied = "denied"
)

// ExpectedFile says what a file of the workspace must be like afterwards.
type ExpectedFile struct {
	Path      string
	Exists    bool
	Contains  string
	Pattern   *match.Pattern // nil: any
	Unchanged bool           // as in the workspace of the case
}

// ExpectedStream says how many events of a stream there must be that have a text.
type ExpectedStream struct {
	Stream   string // NAME or NAME@PROVIDER
	Contains string
	Pattern  *match.Pattern // nil: any
	Min      int
	Max      int // -1: no limit
}

// EvalClaim is what the session's messages must say, or must not say: by a pattern, else as the judge sees it.
type EvalClaim struct {
	Text    string
	Pattern *match.Pattern // nil: the judge decides
	// UnlessCall is the tool, with *, of which a call with the outcome ok makes a prohibited claim true; "": none.
	UnlessCall string
}

// EvalJudge is what a judge model decides by, and answers that show whether it can.
type EvalJudge struct {
	Rubric string
	Pass   []string // answers that the judge must let pass
	Fail   []string // answers that it must not
}

// NeedsJudge reports whether a model has to judge what the session says.
func (c *EvalCase) NeedsJudge() bool {
	byJudge := func(claim EvalClaim) bool { return claim.Pattern == nil }
	return c.Judge.Rubric != "" || slices.ContainsFunc(c.Observations, byJudge) ||
		slices.ContainsFunc(c.Prohibited, byJudge)
}

// EvalVariant is a change of cases that tapctl evals optimize tries. The file's name without .toml is its name.
type EvalVariant struct {
	Name, File, Title string
	Tools             map[string]string // descriptions of providers' tools, by the tool's name
	Contexts          map[string]string // of providers, by their name
	Prompt            string            // in place of each prompt; {prompt} is the prompt itself
}

// EvalPromptPlace stands for the case's own prompt in [EvalVariant.Prompt].
const EvalPromptPlace = "{prompt}"

// Apply returns the case with the variant's changes, and false if the variant changes nothing in it. The case itself
// stays as it is.
func (v *EvalVariant) Apply(c EvalCase) (EvalCase, bool) {
	changed := v.Prompt != "" && v.Prompt != EvalPromptPlace
	c.Providers = slices.Clone(c.Providers)
	for i := range c.Providers {
		p := &c.Providers[i]
		if text, ok := v.Contexts[p.Name]; ok && text != p.Context && len(p.Command) == 0 {
			p.Context, changed = text, true
		}
		p.Tools = slices.Clone(p.Tools)
		for j := range p.Tools {
			if text, ok := v.Tools[p.Tools[j].Name]; ok && text != p.Tools[j].Description {
				p.Tools[j].Description, changed = text, true
			}
		}
	}
	if v.Prompt != "" {
		c.Prompts = slices.Clone(c.Prompts)
		for i, prompt := range c.Prompts {
			c.Prompts[i] = strings.ReplaceAll(v.Prompt, EvalPromptPlace, prompt)
		}
	}
	return c, changed
}

// EvalVariantsDir is the directory beside the cases that has the variants.
const EvalVariantsDir = "variants"

// EvalCases reads the cases of a directory, *.toml, in the order of their names. The error is [Faults], of all files
// at once, or that of a directory that can't be read or has no case.
func EvalCases(dir string) ([]EvalCase, error) { return readEvals(dir, "case", ParseEvalCase) }

// EvalVariants reads the variants of a directory of cases, as [EvalCases] reads those.
func EvalVariants(dir string) ([]EvalVariant, error) {
	return readEvals(filepath.Join(dir, EvalVariantsDir), "variant", ParseEvalVariant)
}

func readEvals[T any](dir, what string, parse func(file string, data []byte) (T, Faults)) ([]T, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the %ss: %w", what, err)
	}
	var all []T
	var faults Faults
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if e.IsDir() || !strings.HasSuffix(e.Name(), providerSuffix) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		data, err := readFile(file)
		if err != nil {
			return nil, err
		}
		one, more := parse(file, data)
		faults = append(faults, more...)
		all = append(all, one)
	}
	switch {
	case len(faults) > 0:
		return nil, faults
	case len(all) == 0:
		return nil, fmt.Errorf("%s has no %s: write one, NAME.toml, as docs/evals.md says", dir, what)
	}
	return all, nil
}
