package taptools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"tapgw/internal/evidence"
	"tapgw/internal/visible"
)

const maxChecks = 100

// check is a check as [evidence.Parse] reads it: one of file, stream and call, or a type with the
// fields of that type.
type check struct {
	File        any    `json:"file,omitempty"        jsonschema:"a path, or an object with path, nonEmpty, contains or pattern"`
	Stream      any    `json:"stream,omitempty"      jsonschema:"a name, or an object with channel, limit, minEntries, contains or pattern"`
	Call        any    `json:"call,omitempty"        jsonschema:"a whole command, or an object with tool, command, contains, pattern, exitCode or success"`
	Type        string `json:"type,omitempty"        jsonschema:"instead of file, stream and call: file, stream or command_evidence, with the fields below"`
	Description string `json:"description,omitempty" jsonschema:"what the check shows"`
	Path        string `json:"path,omitempty"        jsonschema:"of a file: its path below the session's directory"`
	NonEmpty    bool   `json:"nonEmpty,omitempty"    jsonschema:"of a file: it must have content"`
	Channel     string `json:"channel,omitempty"     jsonschema:"of a stream: its name, or NAME@PROVIDER"`
	Limit       int    `json:"limit,omitempty"       jsonschema:"of a stream: how many of its latest events count; all if left out"`
	MinEntries  int    `json:"minEntries,omitempty"  jsonschema:"of a stream: how many events must be there; 1 if left out"`
	Contains    string `json:"contains,omitempty"    jsonschema:"of a file or stream: a text that the file, or an event, must have"`
	Pattern     string `json:"pattern,omitempty"     jsonschema:"a JavaScript regular expression that the file, an event or the command must match"`
	Label       string `json:"label,omitempty"       jsonschema:"of command_evidence: the command, or a part of it"`
	Command     string `json:"command,omitempty"     jsonschema:"of command_evidence: the whole command, as the shell got it"`
	Tool        string `json:"tool,omitempty"        jsonschema:"of command_evidence: the tool's name; any if left out"`
	ExitCode    *int   `json:"exitCode,omitempty"    jsonschema:"of command_evidence: the exit code of the latest such command"`
	Success     *bool  `json:"success,omitempty"     jsonschema:"of command_evidence: whether the latest such command worked"`
}

type claim struct {
	Claim    string `json:"claim"    jsonschema:"what is claimed"`
	Evidence check  `json:"evidence" jsonschema:"what shows it"`
}

type verifyArgs struct {
	Checks []check `json:"checks" jsonschema:"what must hold"`
}

type auditArgs struct {
	Claims []claim `json:"claims" jsonschema:"each with its evidence"`
}

func (t *toolset) addChecks() {
	const never = " Nothing is run: only what is there counts."
	addTool(t, "tap_verify_goal_output", "Check the result of your work against files and streams "+
		"of this session, and say which checks fail."+never, t.verify, isReadOnly)
	addTool(t, "tap_audit_claims", "Check each claim about your work against its evidence, a file "+
		"or a stream of this session, and say which ones nothing shows."+never, t.audit, isReadOnly)
}

func (t *toolset) verify(ctx context.Context, in verifyArgs) (string, error) {
	if len(in.Checks) == 0 || len(in.Checks) > maxChecks {
		return "", fmt.Errorf("checks: has %d entries, and must have 1 to %d", len(in.Checks),
			maxChecks)
	}
	r := report{title: "Goal output verification"}
	for _, c := range in.Checks {
		subject, err := t.holds(ctx, c)
		r.add(cmp.Or(subject, c.Description, c.Type, "a check"), err)
	}
	return r.String(), nil
}

func (t *toolset) audit(ctx context.Context, in auditArgs) (string, error) {
	if len(in.Claims) == 0 || len(in.Claims) > maxChecks {
		return "", fmt.Errorf("claims: has %d entries, and must have 1 to %d", len(in.Claims),
			maxChecks)
	}
	r := report{title: "Claim audit"}
	for _, c := range in.Claims {
		_, err := t.holds(ctx, c.Evidence)
		r.add(c.Claim, err)
	}
	return r.String(), nil
}

// report says of each check whether it holds.
type report struct {
	title    string
	lines    []string
	isFailed bool
}

func (r *report) add(what string, err error) {
	line := "- PASS " + visible.Line(what)
	if err != nil {
		r.isFailed = true
		line = "- FAIL " + visible.Line(what) + " — " + visible.Line(err.Error())
	}
	r.lines = append(r.lines, line)
}

func (r *report) String() string {
	word := "passed"
	if r.isFailed {
		word = "failed"
	}
	return r.title + ": " + word + "\n" + strings.Join(r.lines, "\n")
}

// holds returns the subject of a check if that can be read. err is nil if the check holds;
// otherwise it says why not.
func (t *toolset) holds(ctx context.Context, c check) (subject string, err error) {
	data, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	parsed, err := evidence.Parse(data)
	if err != nil {
		return "", err
	}
	k := evidence.Checker{Session: t.Session, Calls: t.Calls}
	return evidence.Subject(parsed), k.Check(ctx, parsed)
}
