package taptools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tapgw/internal/match"
	"tapgw/internal/visible"
	"tapgw/providers"
)

const (
	maxChecks  = 100
	maxContent = 1 << 20 // bytes of a file in which a text is looked for
)

// check is something that can be looked up, and is never run.
type check struct {
	Type        string `json:"type"                  jsonschema:"file, stream or command_evidence"`
	Description string `json:"description,omitempty" jsonschema:"what the check shows"`
	Path        string `json:"path,omitempty"        jsonschema:"of a file: its path below the session's directory"`
	NonEmpty    bool   `json:"nonEmpty,omitempty"    jsonschema:"of a file: it must have content"`
	Channel     string `json:"channel,omitempty"     jsonschema:"of a stream: its name"`
	Limit       int    `json:"limit,omitempty"       jsonschema:"of a stream: how many of its latest events count; all if left out"`
	MinEntries  int    `json:"minEntries,omitempty"  jsonschema:"of a stream: how many events must be there; 1 if left out"`
	Contains    string `json:"contains,omitempty"    jsonschema:"a text that the file, or an event, must have"`
	Pattern     string `json:"pattern,omitempty"     jsonschema:"a JavaScript regular expression that the file, or an event, must match"`
	Label       string `json:"label,omitempty"       jsonschema:"of command_evidence: which command"`
	ExitCode    *int   `json:"exitCode,omitempty"    jsonschema:"of command_evidence: how it ended"`
	Success     *bool  `json:"success,omitempty"     jsonschema:"of command_evidence: whether it worked"`
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
	providers.AddTool(t.provider, "tap_verify_goal_output", "Check the result of your work against files and streams "+
		"of this session, and say which checks fail."+never, t.verify, isReadOnly)
	providers.AddTool(t.provider, "tap_audit_claims", "Check each claim about your work against its evidence, a file "+
		"or a stream of this session, and say which ones nothing shows."+never, t.audit, isReadOnly)
}

func (t *toolset) verify(ctx context.Context, in verifyArgs) (string, error) {
	if len(in.Checks) == 0 || len(in.Checks) > maxChecks {
		return "", fmt.Errorf("checks: has %d entries, and must have 1 to %d", len(in.Checks), maxChecks)
	}
	r := report{title: "Goal output verification"}
	for _, c := range in.Checks {
		what := cmp.Or(c.Description, strings.TrimSpace(c.Type+" "+cmp.Or(c.Path, c.Channel, c.Label)))
		r.add(what, t.holds(ctx, c))
	}
	return r.String(), nil
}

func (t *toolset) audit(ctx context.Context, in auditArgs) (string, error) {
	if len(in.Claims) == 0 || len(in.Claims) > maxChecks {
		return "", fmt.Errorf("claims: has %d entries, and must have 1 to %d", len(in.Claims), maxChecks)
	}
	r := report{title: "Claim audit"}
	for _, c := range in.Claims {
		r.add(c.Claim, t.holds(ctx, c.Evidence))
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

// holds returns nil if a check holds, else why not.
func (t *toolset) holds(ctx context.Context, c check) error {
	fits, err := c.condition()
	if err != nil {
		return err
	}
	switch c.Type {
	case "file":
		return t.fileHolds(ctx, c, fits)
	case "stream":
		return t.streamHolds(c, fits)
	case "command_evidence":
		return errors.New("this gateway keeps no record of commands: show it by a file or a stream")
	}
	return fmt.Errorf("there is no check of type %q: there are file, stream and command_evidence", c.Type)
}

// condition returns what a text must fulfil; nil for nothing.
func (c *check) condition() (func(text string) error, error) {
	if c.Contains == "" && c.Pattern == "" {
		return nil, nil
	}
	var pattern *match.Pattern
	if c.Pattern != "" {
		var err error
		if pattern, err = match.Compile(c.Pattern); err != nil {
			return nil, fmt.Errorf("pattern: %w", err)
		}
	}
	return func(text string) error {
		if !strings.Contains(text, c.Contains) {
			return fmt.Errorf("%q is not in it", c.Contains)
		}
		if pattern == nil {
			return nil
		}
		switch pattern.Match(match.NewText(text)) {
		case match.Yes:
			return nil
		case match.Undecided:
			return fmt.Errorf("%q takes too long on a text this long: use contains", c.Pattern)
		}
		return fmt.Errorf("it does not match %q", c.Pattern)
	}, nil
}

func (t *toolset) streamHolds(c check, fits func(string) error) error {
	stream, err := streamName(c.Channel)
	if err != nil {
		return err
	}
	rows := t.Session.History([]string{stream}, 0, time.Time{})
	if c.Limit > 0 {
		rows = rows[:min(c.Limit, len(rows))]
	}
	if least := max(c.MinEntries, 1); len(rows) < least {
		return fmt.Errorf("stream '%s' has %d entries, and needs %d", stream, len(rows), least)
	}
	if fits == nil {
		return nil
	}
	for _, row := range rows {
		if err = fits(textOf(row)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("none of %d entries of stream '%s': %w", len(rows), stream, err)
}

// fileHolds looks at a file of the session's directory. Symbolic links don't lead out of it, and the rules about
// reading files hold for it.
func (t *toolset) fileHolds(ctx context.Context, c check, fits func(string) error) error {
	if c.Path == "" {
		return errors.New("path: is missing")
	}
	dir := t.Session.View().CWD
	path := c.Path
	if filepath.IsAbs(path) {
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return errors.New("path: is not below the session's directory")
		}
		path = rel
	}
	if !filepath.IsLocal(path) {
		return errors.New("path: is not below the session's directory")
	}
	args, err := json.Marshal(map[string]string{"path": filepath.Join(dir, path)})
	if err != nil {
		return err
	}
	if d := t.Session.PreToolUse(ctx, t.Session.OwnTool("read"), args); d.Deny {
		return fmt.Errorf("reading it is denied: %s", d.Reason)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer would block
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no such file")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is no file")
	case c.NonEmpty && info.Size() == 0:
		return errors.New("the file is empty")
	case fits == nil:
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxContent+1))
	if err != nil {
		return err
	}
	if len(data) > maxContent {
		return fmt.Errorf("the file has more than %d KiB, too much to look into", maxContent>>10)
	}
	return fits(string(data))
}
