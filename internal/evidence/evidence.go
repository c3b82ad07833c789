package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/match"
	"tapgw/internal/protect"
	"tapgw/internal/protocol"
	"tapgw/internal/shellrule"
	"tapgw/internal/visible"
)

// This file looks up the checks: in files, in streams and in recorded calls.

// maxContent is how much of a file a text is looked for in, in bytes.
const maxContent = 1 << 20

// Call is a tool call of a session as the gateway recorded it.
type Call struct {
	Tool     string
	Command  string // of the session's own shell; "" for other tools
	ExitCode *int   // of the command; nil if unknown
	Failed   bool   // the call itself failed
	Reason   string // it failed
}

// Calls finds the calls of a session that ended after a time, oldest first.
type Calls func(ctx context.Context, session string, since time.Time) ([]Call, error)

// Checker holds checks against a session. Session is required.
type Checker struct {
	Session *gateway.Session
	Calls   Calls // nil: no calls are recorded
	// Since is the time from which on events and calls count; zero for all.
	Since time.Time
	// ByPerson says that a person wrote the checks. They may read the whole of the session's
	// directory; those of a model read only files that its session may read.
	ByPerson bool
}

// Check returns nil if a check holds, else why not, in one line.
func (k *Checker) Check(ctx context.Context, c adminapi.Check) error {
	if err := validate(&c); err != nil {
		return err
	}
	switch {
	case c.File != nil:
		return k.file(ctx, c.File)
	case c.Stream != nil:
		return k.stream(c.Stream)
	}
	return k.call(ctx, c.Call)
}

// Subject is the subject of a check, for a line.
func Subject(c adminapi.Check) string {
	switch {
	case c.Description != "":
		return c.Description
	case c.File != nil:
		return "file " + c.File.Path
	case c.Stream != nil:
		return "stream " + c.Stream.Channel
	case c.Call != nil:
		return "call " + cmp.Or(c.Call.Command, c.Call.Contains, c.Call.Pattern, c.Call.Tool)
	}
	return ""
}

// condition is a text that must be contained and a pattern that must match; "" for no such demand.
type condition struct{ contains, pattern string }

// fits returns nil if a text fulfils the condition, else why not.
func (c condition) fits(text string) error {
	if !strings.Contains(text, c.contains) {
		return fmt.Errorf("%q is not in it", c.contains)
	}
	if c.pattern == "" {
		return nil
	}
	pattern, err := match.Compile(c.pattern)
	if err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	switch pattern.Match(match.NewText(text)) {
	case match.Yes:
		return nil
	case match.Undecided:
		return fmt.Errorf("%q takes too long on a text this long: use contains", c.pattern)
	}
	return fmt.Errorf("it does not match %q", c.pattern)
}

// isOfModel reports whether the events of a provider may be the model's own words: those of the
// tap_* tools, of the emitters that it starts, and of goals. They show nothing, and neither do
// prompts.
func isOfModel(provider string) bool {
	return provider == "tap" || strings.HasPrefix(provider, "tap.") || provider == "goals"
}

func (k *Checker) stream(c *adminapi.StreamCheck) error {
	name, provider, has := strings.Cut(c.Channel, "@")
	channel := protocol.NormalName(name)
	if has {
		channel += "@" + protocol.NormalName(provider)
	}
	rows := k.Session.History([]string{channel}, 0, k.Since)
	rows = slices.DeleteFunc(rows, func(r gateway.HistoryRow) bool {
		return r.Event == "" || isOfModel(r.Provider)
	})
	if c.Limit > 0 {
		rows = rows[:min(c.Limit, len(rows))]
	}
	if least := max(c.MinEntries, 1); len(rows) < least {
		return fmt.Errorf("stream '%s' has %d entries, and needs %d", channel, len(rows), least)
	}
	wanted := condition{c.Contains, c.Pattern}
	var err error
	for _, row := range rows {
		if err = wanted.fits(row.Event); err == nil {
			return nil
		}
	}
	return fmt.Errorf("none of %d entries of stream '%s': %w", len(rows), channel, err)
}

// call looks at the latest call that fits.
func (k *Checker) call(ctx context.Context, c *adminapi.CallCheck) error {
	if k.Calls == nil {
		return errors.New("this gateway keeps no record of commands: show it by a file or a stream")
	}
	calls, err := k.Calls(ctx, k.Session.ID(), k.Since)
	if err != nil {
		return fmt.Errorf("looking for recorded calls: %w", err)
	}
	for _, call := range slices.Backward(calls) {
		if isMeant(c, call) {
			return cmp.Or(decides(c, call), ended(c, call))
		}
	}
	return fmt.Errorf("no such call is recorded%s", hint(c))
}

// hint says which call is looked for.
func hint(c *adminapi.CallCheck) string {
	switch {
	case c.Command != "":
		return fmt.Sprintf(": run exactly %q", c.Command)
	case c.Contains != "":
		return fmt.Sprintf(": its command must have %q", c.Contains)
	case c.Pattern != "":
		return fmt.Sprintf(": its command must match %q", c.Pattern)
	}
	return fmt.Sprintf(": call %s", c.Tool)
}

// isMeant reports whether a check asks for this call.
func isMeant(c *adminapi.CallCheck, call Call) bool {
	if c.Tool != "" && c.Tool != call.Tool {
		return false
	}
	if c.Command == "" && c.Contains == "" && c.Pattern == "" {
		return true
	}
	command := strings.TrimSpace(call.Command)
	if command == "" || c.Command != "" && command != strings.TrimSpace(c.Command) {
		return false
	}
	return condition{c.Contains, c.Pattern}.fits(command) == nil
}

// decides returns an error if a check looks for a part of a command on which the exit code does not
// depend, as in `make test; true` and `make test | tail`.
func decides(c *adminapi.CallCheck, call Call) error {
	if c.Contains == "" && c.Pattern == "" || call.ExitCode == nil {
		return nil
	}
	parts, ok := shellrule.Deciding(call.Command)
	wanted := condition{c.Contains, c.Pattern}
	if ok && len(call.Command) <= maxCommand && // a longer command is recorded without its end
		slices.ContainsFunc(parts, func(part string) bool { return wanted.fits(part) == nil }) {
		return nil
	}
	return fmt.Errorf(
		"the exit code of the latest such call, %q, does not show whether that part "+
			"worked: run it alone",
		visible.Ends(call.Command, 80, 20))
}

// ended returns nil if a call ended as the check says.
func ended(c *adminapi.CallCheck, call Call) error {
	how, worked := "worked", !call.Failed
	switch {
	case call.ExitCode != nil:
		how, worked = fmt.Sprintf("ended with exit code %d", *call.ExitCode), *call.ExitCode == 0
	case call.Failed:
		how = strings.TrimSuffix("failed: "+call.Reason, ": ")
	case call.Command != "": // it may go on in the background
		return errors.New(
			"the latest such call has not ended, as far as is known: its exit code is not recorded")
	}
	switch {
	case c.ExitCode != nil && call.ExitCode == nil:
		return fmt.Errorf("the latest such call %s, and its exit code is not known; %d is needed",
			how, *c.ExitCode)
	case c.ExitCode != nil && *call.ExitCode != *c.ExitCode:
		return fmt.Errorf("the latest such call %s, and %d is needed", how, *c.ExitCode)
	case c.Success != nil && worked != *c.Success, c.Success == nil && c.ExitCode == nil && !worked:
		return fmt.Errorf("the latest such call %s", how)
	}
	return nil
}

// InDir returns an error, which names the field, for a check of a file that a session in the
// directory dir can never have: its path leads out of dir. Where symbolic links lead shows only
// when the file is looked at.
func InDir(c adminapi.Check, dir string) error {
	if c.File == nil {
		return nil
	}
	_, err := below(dir, c.File.Path)
	return inField("file", inField("path", err))
}

// below returns the path of a file from dir on, by its name alone.
func below(dir, path string) (string, error) {
	rel := path
	if filepath.IsAbs(path) {
		var err error
		if rel, err = filepath.Rel(dir, path); err != nil {
			return "", err
		}
	}
	switch {
	case strings.ContainsRune(rel, 0):
		return "", fmt.Errorf("%q is no name of a file", path)
	case !filepath.IsLocal(rel):
		return "", fmt.Errorf("%q is not below the session's directory, %s", path, dir)
	}
	return rel, nil
}

// file looks at a file of the session's directory. Symbolic links don't lead out of it, and the
// session's host and the rules decide whether the file may be read, before anything of it shows.
func (k *Checker) file(ctx context.Context, c *adminapi.FileCheck) error {
	dir := k.Session.View().CWD
	path, err := below(dir, c.Path)
	if err != nil {
		return inField("path", err)
	}
	real := target(dir, path) // a link may lead elsewhere later
	// a rule may name the file to which a link leads
	for _, name := range slices.Compact([]string{real, path}) {
		if err := k.permitRead(ctx, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// a pipe without a writer would block
	f, err := root.OpenFile(real, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no such file")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := k.Session.PermitOpen(info); err != nil {
		return err
	}
	return content(f, info, c)
}

func (k *Checker) permitRead(ctx context.Context, path string) error {
	if k.ByPerson {
		return k.Session.PermitReadOfPerson(ctx, path)
	}
	return k.Session.PermitRead(ctx, path, "check what the session's model says of its work")
}

// target is where a path below dir leads, also below dir, whether a file is there or not; the path
// itself if it leads elsewhere.
func target(dir, path string) string {
	rel, err := filepath.Rel(protect.Target(dir), protect.Target(filepath.Join(dir, path)))
	if err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return rel
}

// content holds a check against an open file.
func content(f io.Reader, info fs.FileInfo, c *adminapi.FileCheck) error {
	switch {
	case !info.Mode().IsRegular():
		return errors.New("it is no file")
	case c.NonEmpty && info.Size() == 0:
		return errors.New("the file is empty")
	case c.Contains == "" && c.Pattern == "":
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxContent+1))
	if err != nil {
		return err
	}
	if len(data) > maxContent {
		return fmt.Errorf("the file has more than %d KiB, too much to look into", maxContent>>10)
	}
	return condition{c.Contains, c.Pattern}.fits(string(data))
}
