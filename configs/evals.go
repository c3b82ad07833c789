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

// EvalCase is a case of tapctl evals: the prompt for a session, the providers and files that the
// session has, and the conditions that must hold afterwards. The file's name without .toml is the
// case's id. docs/evals.md describes each key.
type EvalCase struct {
	ID, File string
	Title    string   `toml:"title" is:"line"`
	Category string   `toml:"category" is:"line"`
	Prompt   string   `toml:"prompt" is:"text"` // of the file: short for one of Prompts
	Prompts  []string `toml:"prompts" is:"text" repeats:"true"`
	// Repeat is how often the case is run, MinRate how much of the runs must pass, above 0 and at
	// most 1.
	Repeat  int     `toml:"repeat" default:"1" range:"1,1000"`
	MinRate float64 `toml:"min_rate" default:"1"`
	// Wait is how long after the last turn the session is still watched.
	Wait   time.Duration `toml:"wait" range:"0,1h"`
	Budget EvalBudget    `toml:"budget"`
	// Workspace has the texts of the files that the session finds, by path.
	Workspace    map[string]string `toml:"workspace" names:"work"`
	Providers    []EvalProvider    `toml:"provider"`
	EvalExpected `toml:"expect"`
	Observations []EvalClaim       `toml:"observation"`
	Prohibited   []ProhibitedClaim `toml:"prohibited"`
	Judge        EvalJudge         `toml:"judge"`
}

// EvalBudget says how much a run may use. A run that uses more is interrupted, and has failed.
type EvalBudget struct {
	Time  time.Duration `toml:"time" default:"5m" range:"1s,24h"`
	Turns int           `toml:"turns" default:"20" range:"1,10000"`    // prompts, also of events
	Calls int           `toml:"calls" default:"200" range:"0,1000000"` // of tools
}

// EvalProvider is a provider that a case gives its sessions: its tools with their answers, or a
// program that is the provider.
type EvalProvider struct {
	Name string `toml:"name" is:"peer" need:"what the session knows it by"`
	// Command is a program that binds the session under Name; all below is empty then.
	Command []string   `toml:"command" first:"must be the name of a program" is:"noNUL"`
	Context string     `toml:"context" is:"text"` // added to each prompt
	Tools   []EvalTool `toml:"tool"`
	Gates   []EvalGate `toml:"gate"`
	Pushes  []EvalPush `toml:"push"`
}

// EvalTool is a tool of an [EvalProvider]. Parameters is a JSON Schema.
type EvalTool struct {
	Name        string        `toml:"name" is:"tool" need:"what the model calls it by"`
	Description string        `toml:"description" is:"text" need:"what it tells the model"`
	Parameters  string        `toml:"parameters" is:"schema" default:"{\"type\":\"object\"}"`
	Timeout     time.Duration `toml:"timeout" range:"1ms,1h"`
	Answers     []EvalAnswer  `toml:"answer"`
}

// EvalAnswer is the result of a call of an [EvalTool]. A call gets the first answer in the file
// that fits its arguments and was not given yet, else the last one that fits. Without Args an
// answer fits all calls. One of Text, JSON and Error is set.
type EvalAnswer struct {
	Args  *match.Pattern `toml:"args"`
	Text  string         `toml:"text"`
	JSON  string         `toml:"json" is:"json"`
	Error string         `toml:"error" is:"text"`
	Code  string         `toml:"code" of:"NOT_FOUND,TIMEOUT,CANCELLED,UNAUTHORIZED,INTERNAL"`
	Delay time.Duration  `toml:"delay" range:"0,1h"`
}

// EvalGate is a rule of an [EvalProvider] that decides about calls. Tool and Args are as in a
// provider's rule.
type EvalGate struct {
	Tool     string        `toml:"tool" is:"text" need:"which calls it decides about; * is all"`
	Args     string        `toml:"args" is:"pattern"`
	Decision string        `toml:"decision" of:"allow,deny,silent" need:"allow, deny or silent"`
	Reason   string        `toml:"reason" is:"text"`
	Delay    time.Duration `toml:"delay" range:"0,1h"`
}

// Decisions of an [EvalGate]. A silent one never answers.
const (
	GateAllow  = "allow"
	GateDeny   = "deny"
	GateSilent = "silent"
)

// EvalPush is an event that an [EvalProvider] pushes once: with the first prompt, or after the
// first call of a tool, or after a turn, from 1.
type EvalPush struct {
	Text      string        `toml:"text" is:"text"`
	Prompt    string        `toml:"prompt" is:"text"`
	Stream    string        `toml:"stream" is:"text"`
	Level     string        `toml:"level" of:"keep,surface,inject" default:"surface"`
	AfterCall string        `toml:"after_call" is:"text"`
	AfterTurn int           `toml:"after_turn" range:"1,10000"`
	Delay     time.Duration `toml:"delay" range:"0,1h"`
}

// EvalExpected is the table [expect] of a case. Order has tools whose calls must come in this
// order, with other calls between them.
type EvalExpected struct {
	Order   []string         `toml:"order" is:"text" repeats:"true"`
	Calls   []ExpectedCall   `toml:"call"`
	Files   []ExpectedFile   `toml:"file"`
	Streams []ExpectedStream `toml:"stream"`
}

// ExpectedCall says how many calls of a tool there must be, with these arguments and this outcome:
// CallOK, CallFailed, CallDenied, or "" for any. Only calls after the first call of the tool After
// count.
type ExpectedCall struct {
	Tool    string         `toml:"tool" is:"text" need:"its name, in which * stands for any text"`
	Args    *match.Pattern `toml:"args"` // nil: any
	Outcome string         `toml:"outcome" of:"ok,failed,denied"`
	After   string         `toml:"after" is:"text"`
	ExpectedCount
}

// ExpectedCount is how many calls or events there must be. Without both keys it is at least one.
type ExpectedCount struct {
	Max int `toml:"max" default:"-1" range:"0,1000000"` // -1: no limit
	Min int `toml:"min" default:"1" range:"0,1000000"`
}

// Outcomes of an [ExpectedCall]. A call that was denied has failed, too.
const (
	CallOK     = "ok"
	CallFailed = "failed"
	CallDenied = "denied"
)

// ExpectedFile is a condition on a file of the workspace after the session.
type ExpectedFile struct {
	Path      string         `toml:"path" is:"work" need:"the file, relative to the workspace"`
	Exists    bool           `toml:"exists" default:"true"`
	Contains  string         `toml:"contains" is:"text"`
	Pattern   *match.Pattern `toml:"pattern"`   // nil: any
	Unchanged bool           `toml:"unchanged"` // as in the workspace of the case
}

// ExpectedStream says how many events of a stream there must be that have a text.
type ExpectedStream struct {
	Stream   string         `toml:"stream" is:"text" need:"its name, or NAME@PROVIDER"`
	Contains string         `toml:"contains" is:"text"`
	Pattern  *match.Pattern `toml:"pattern"` // nil: any
	ExpectedCount
}

// EvalClaim is a claim that the session's messages must make, or must not make. A pattern decides,
// or else the judge.
type EvalClaim struct {
	Text    string         `toml:"text" is:"line" need:"the claim, for people and the judge"`
	Pattern *match.Pattern `toml:"pattern"` // nil: the judge decides
}

// ProhibitedClaim is a claim that the messages must not make. A call of the tool UnlessCall, which
// may have *, whose outcome is ok makes the claim true. With UnlessCall "" no call does.
type ProhibitedClaim struct {
	EvalClaim
	UnlessCall string `toml:"unless_call" is:"text"`
}

// EvalJudge is the instruction of a judge model, with examples of answers that it must accept and
// answers that it must reject. The examples show whether the judge can tell them apart.
type EvalJudge struct {
	Rubric string   `toml:"rubric" is:"text"`
	Pass   []string `toml:"pass" is:"text" repeats:"true"`
	Fail   []string `toml:"fail" is:"text" repeats:"true"`
}

// NeedsJudge reports whether a model has to judge the session's messages.
func (c *EvalCase) NeedsJudge() bool {
	return c.Judge.Rubric != "" ||
		slices.ContainsFunc(c.Observations, func(claim EvalClaim) bool {
			return claim.Pattern == nil
		}) ||
		slices.ContainsFunc(c.Prohibited, func(claim ProhibitedClaim) bool {
			return claim.Pattern == nil
		})
}

// EvalVariant is a change of cases that tapctl evals optimize tries. The file's name without .toml
// is its name.
type EvalVariant struct {
	Name, File string
	Title      string            `toml:"title" is:"line"`
	Tools      map[string]string `toml:"tools" names:"text"`    // descriptions, by the tool's name
	Contexts   map[string]string `toml:"contexts" names:"text"` // of providers, by their name
	// Prompt takes the place of each prompt; {prompt} is the prompt itself.
	Prompt string `toml:"prompt" is:"variant"`
}

// EvalPromptPlace stands for the case's own prompt in [EvalVariant.Prompt].
const EvalPromptPlace = "{prompt}"

// Apply returns the case with the variant's changes, and false if the variant changes no part of
// it. It does not modify c.
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

// EvalCases reads the cases of a directory, *.toml, in the order of their names. It returns the
// [Faults] of all files at once, or an error if the directory can't be read or has no case.
func EvalCases(dir string) ([]EvalCase, error) { return readEvals(dir, "case", ParseEvalCase) }

// EvalVariants reads the variants of a directory of cases, with the errors of [EvalCases].
func EvalVariants(dir string) ([]EvalVariant, error) {
	return readEvals(filepath.Join(dir, EvalVariantsDir), "variant", ParseEvalVariant)
}

func readEvals[T any](
	dir, what string, parse func(file string, data []byte) (T, Faults),
) ([]T, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the %ss: %w", what, err)
	}
	var all []T
	var faults Faults
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if e.IsDir() || !strings.HasSuffix(e.Name(), providerSuffix) ||
			strings.HasPrefix(e.Name(), ".") {
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
		return nil, fmt.Errorf("%s has no %s: write one, NAME.toml, as docs/evals.md says", dir,
			what)
	}
	return all, nil
}
