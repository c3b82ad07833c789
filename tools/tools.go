package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"tapgw/internal/protocol"
	"tapgw/tools/internal/schema"
)

// A tool, its environment and its result.

// Kind is the kind of things that a tool touches. A policy decides by it whether a call is allowed.
type Kind int

// Kinds of tools. Manifests and modules of drop-ins name them in lower case.
const (
	Unknown  Kind = iota // a drop-in that does not say
	Read                 // reads the workspace
	Edit                 // writes files
	Terminal             // runs commands
	Web                  // reaches the network
)

var kindNames = []string{"unknown", "read", "edit", "terminal", "web"}

// String returns the name of the kind, "read" for example.
func (k Kind) String() string { return kindNames[k] }

// DefaultTimeout is how long a call may run when neither the tool nor [Env] sets a timeout.
const DefaultTimeout = 2 * time.Minute

// cancelGrace is how long [Tool.Call] waits for a tool whose context has ended: a tool that stops a
// command wants to report the command's output.
const cancelGrace = 2 * time.Second

// Tool is one tool that a model may call. Use it through a pointer. The built-in
// ones come from package builtin, drop-ins from [External]; both are called with [Tool.Call].
type Tool struct {
	Name        string
	Description string // the model decides by it
	// JSON Schema of the arguments, in the server's strict form; see [Tool.Check]
	Parameters json.RawMessage
	Kind       Kind
	Timeout    time.Duration // 0: [DefaultTimeout]
	Source     string        // file of a drop-in; "" for a built-in tool
	// a built-in tool of which each call needs consent, as a drop-in's does
	Consent bool
	// Run does the work. args fit Parameters, and ctx ends with the timeout. The model reads the
	// text of an error, so it names the failed action, its object and the cure.
	Run func(ctx context.Context, env *Env, args json.RawMessage) (Result, error)

	compile    sync.Once // guards the two below
	compiled   *protocol.Schema
	compileErr error
}

// Env is the environment of a tool's call: the workspace and the decisions about everything outside
// it. Its functions may be called by several calls at a time, and those that return an error may
// ask a person and take their time.
type Env struct {
	Root string // of the workspace, absolute
	// Sync is called after a file was written. It may be nil.
	Sync func(path, content string)
	// Output is called for each line that a command of a tool writes, while it runs. It may be nil.
	Output func(line string)
	// Open opens a document in the editor. nil: there is no editor.
	Open func(uri, language, text string)
	// Outside decides about a path outside Root, absolute and with its symbolic
	// links resolved. A nil error allows it. Without Outside, such paths are refused.
	Outside func(ctx context.Context, path string, write bool) error
	// Protected decides about a write to a file that makes programs run, such as a file in .git;
	// why describes it. A nil error allows it. Without Protected, such writes are refused. Sources
	// lists further directories to protect.
	Protected func(ctx context.Context, path, why string) error
	Sources   []string
	// Secrets are the directories of the gateway's tokens and of lsclient's own data. No tool reads
	// or lists them, whatever else is allowed.
	Secrets []string
	// LanguageServers are the user's own, which come before the known ones.
	LanguageServers []LanguageServer
	// the user's directory of the program: memory notes, added libraries
	Home      string
	Libraries string        // directory of added libraries; "": library_docs in Home
	Timeout   time.Duration // of tools without a timeout of their own; 0: [DefaultTimeout]
	// Private decides about a web server whose address is not public, such as one on
	// this machine or its networks. addr is not valid when only a proxy knows the
	// address. A nil error allows it. Without Private, such servers are refused.
	Private func(ctx context.Context, host string, addr netip.AddrPort) error
	// Edit is called before a call writes or deletes files, with all its edits. After an error the
	// call is refused, and no file is changed. Otherwise done is called after the attempt, with its
	// error. Edit may be nil.
	Edit func(ctx context.Context, edits []FileEdit) (done func(error), err error)
	Log  *slog.Logger // gets, at level debug, the stack of a tool that panicked. nil: no log
}

// LanguageServer is a language server of the user's for questions about code: a name for people,
// the command (a program on PATH or an absolute path, and its arguments), and the languages' ids by
// the endings of files, such as ".rs" to "rust". It takes the place of the built-in ones for these
// endings.
type LanguageServer struct {
	Name      string
	Command   []string
	Languages map[string]string
}

// FileEdit is a tool's intended change of one file or directory. Was and Now are its content before
// and after; nil means that there is no file.
type FileEdit struct {
	Path     string // absolute, with its symbolic links resolved
	Name     string // for people: relative to the workspace if the file lies there
	Was, Now *string
	Mode     fs.FileMode // of the file before
	TooLarge bool        // the file before has more than 16 MiB: Was is nil, but it exists
	Dir      bool        // a directory is made; Was and Now are nil
}

// Result is the answer of a tool that succeeded. Parts are for the model; Data
// takes their place when a drop-in answered with a dict. Written and Removed tell
// the caller which files changed.
type Result struct {
	Parts   []string        // texts, one below the other
	Data    json.RawMessage // the dict of a drop-in, such as {"result": "success"}; nil: Parts
	Written []Written       // files that now hold Content
	Removed []string        // absolute paths of deleted files
}

// Written is a file that a tool wrote.
type Written struct {
	Path    string // absolute
	Content string
	Created bool
}

// Text joins the parts of the result, one below the other.
func (r Result) Text() string { return strings.Join(r.Parts, "\n") }

// PanicError is the error of a call whose tool panicked. Its text tells the model
// that the arguments are not at fault. The stack is in [Env.Log].
type PanicError struct {
	Tool  string
	Value any
}

// Error implements error: a text for the model, with the tool and the value of the panic.
func (e *PanicError) Error() string {
	return fmt.Sprintf("%s broke down (%v): this is a fault of the tool, not of its arguments",
		e.Tool, e.Value)
}

// Check reports why the language server would refuse to register the tool: its
// name, its description or its parameters. One such tool makes the server refuse
// all tools of a registration. The error names the tool.
func (t *Tool) Check() error {
	err := func() error {
		switch {
		case !protocol.ValidToolName(t.Name):
			return errors.New("a name is 1 to 64 letters, digits, _ and -")
		case strings.TrimSpace(t.Description) == "":
			return errors.New("the description is missing: the model decides by it")
		}
		return schema.Check(t.Parameters)
	}()
	if err != nil {
		return fmt.Errorf("tool %q: %w", t.Name, err)
	}
	return nil
}

// Validate checks arguments against Parameters. The error names the tool and the
// argument. No arguments at all count as an empty object.
func (t *Tool) Validate(args json.RawMessage) error {
	t.compile.Do(func() {
		t.compiled, t.compileErr = protocol.CompileSchema(protocol.Raw(t.Parameters))
	})
	err := t.compileErr
	if err == nil {
		err = t.compiled.Check(protocol.Raw(orEmptyObject(args)))
	}
	if err != nil {
		return fmt.Errorf("wrong arguments for %s: %w", t.Name, err)
	}
	return nil
}

// LibraryDir returns the directory of the libraries whose documentation the user has added, or "".
func (e *Env) LibraryDir() string {
	if e.Libraries == "" && e.Home != "" {
		return filepath.Join(e.Home, "library_docs")
	}
	return e.Libraries
}

func orEmptyObject(args json.RawMessage) json.RawMessage {
	if len(args) == 0 {
		return json.RawMessage("{}")
	}
	return args
}

// Call runs the tool on arguments and returns exactly one outcome: the tool's own,
// an error about the arguments, a [PanicError], or an error that wraps
// context.DeadlineExceeded or context.Canceled. It returns soon after ctx ends,
// even if Run ignores its context. The time in which a person is asked does not
// count towards the timeout. It is the only place that recovers a tool's
// panics and bounds its time, so callers need not.
func (t *Tool) Call(ctx context.Context, env *Env, args json.RawMessage) (Result, error) {
	if err := t.Validate(args); err != nil {
		return Result{}, err
	}
	timeout := cmp.Or(t.Timeout, env.Timeout, DefaultTimeout)
	clock := newClock(ctx, timeout)
	defer clock.stop()
	ctx, env = clock, clock.env(env)
	type outcome struct {
		Result
		error
	}
	done := make(chan outcome, 1) // buffered, so that an abandoned call can end
	go func() {
		out := outcome{error: &PanicError{Tool: t.Name, Value: "its goroutine ended"}}
		defer func() {
			if r := recover(); r != nil {
				out = outcome{error: &PanicError{t.Name, r}}
				if env.Log != nil {
					env.Log.Debug("a tool panicked", "tool", t.Name, "value", r, "stack",
						string(debug.Stack()))
				}
			}
			done <- out
		}()
		out.Result, out.error = t.Run(ctx, env, orEmptyObject(args))
	}()
	select {
	case out := <-done:
		return out.Result, t.endError(ctx, timeout, out.error)
	case <-ctx.Done():
	}
	grace := time.NewTimer(cancelGrace)
	defer grace.Stop()
	select {
	case out := <-done:
		return out.Result, t.endError(ctx, timeout, out.error)
	case <-grace.C:
		return Result{}, t.endError(ctx, timeout, ctx.Err())
	}
}

// endError adds to err why the context of the call ended. It returns err unchanged
// if the context has not ended.
func (t *Tool) endError(ctx context.Context, timeout time.Duration, err error) error {
	end := ctx.Err()
	if err == nil || end == nil {
		return err
	}
	var what string
	switch {
	case errors.Is(context.Cause(ctx), errTimeout):
		what = fmt.Sprintf("did not finish within %v", timeout)
	case errors.Is(end, context.DeadlineExceeded):
		what = "did not finish in time"
	default:
		what = "was cancelled"
	}
	if !errors.Is(err, end) && !errors.Is(err, context.Canceled) {
		what += ": " + err.Error()
	}
	return endedError{t.Name + " " + what, end}
}

// endedError is the error of a call whose context ended. It wraps the context's error.
type endedError struct {
	text string
	end  error
}

func (e endedError) Error() string { return e.text }

func (e endedError) Unwrap() error { return e.end }
