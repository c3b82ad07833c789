package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	jsonexp "github.com/go-json-experiment/json"

	"tapgw/internal/protocol"
	"tapgw/tools/internal/schema"
	"tapgw/tools/internal/workspace"
)

// Kind is what a tool touches: a policy decides by it.
type Kind int

// Kinds of tools.
const (
	Read     Kind = iota // reads the workspace
	Edit                 // writes files
	Terminal             // runs commands
	Web                  // reaches the network
)

func (k Kind) String() string {
	switch k {
	case Read:
		return "read"
	case Edit:
		return "edit"
	case Terminal:
		return "terminal"
	case Web:
		return "web"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// DefaultTimeout is how long a tool may run that doesn't say.
const DefaultTimeout = 2 * time.Minute

// lateness is how long a tool may take to answer once its context has ended: one
// that stops a command wants to say what it printed. After it, nobody listens.
const lateness = 2 * time.Second

// Tool is one tool that a model may call. Use it through a pointer.
type Tool struct {
	Name        string
	Description string          // the model decides by it
	Parameters  json.RawMessage // JSON Schema of the arguments, in the server's strict form; see [Tool.Check]
	Kind        Kind
	Timeout     time.Duration // 0: [DefaultTimeout]
	Source      string        // file of a drop-in; "" for one that is built in
	// Run does the work. args fit Parameters, ctx ends with the timeout. The text
	// of an error is the model's to read: what failed, on what, what to do.
	Run func(ctx context.Context, env *Env, args json.RawMessage) (Result, error)

	tolerant bool // its caller may send more than it was told

	compile    sync.Once // guards the two below
	compiled   *protocol.Schema
	compileErr error
}

// Env is what a tool receives (the document's ToolContext) and what confines it.
// Its functions may be called from several tools at a time.
type Env struct {
	Root string // of the workspace, absolute
	// Sync is told of each file that was written, after it was. nil: nobody listens.
	Sync func(path, content string)
	// Open opens a document in the editor. nil: there is none.
	Open func(uri, language, text string)
	// Outside decides about a path outside Root, absolute and with its symbolic
	// links resolved: nil allows. It may ask, and takes as long as that takes.
	// Without it, such paths are refused.
	Outside func(ctx context.Context, path string, write bool) error
	// Protected decides about writing where files make programs run, such as .git, as
	// why says: nil allows. It may ask, and takes as long as that takes. Without it,
	// such writes are refused. Sources are directories that are protected besides.
	Protected func(ctx context.Context, path, why string) error
	Sources   []string
	// Secrets are directories of the gateway's tokens: no tool reads what lies there,
	// whatever is allowed.
	Secrets   []string
	Home      string        // the user's directory of the program: memory notes, added libraries
	Libraries string        // directory of added libraries; "": library_docs in Home
	Timeout   time.Duration // of tools that don't say; 0: [DefaultTimeout]
	// Private decides about a server of the web whose address is not public: this
	// machine's, its networks'; or not known here, where a proxy looks it up: then addr
	// is not valid. nil allows. Without it, such servers are refused.
	Private func(ctx context.Context, host string, addr netip.AddrPort) error
}

// Result is what a tool answers.
type Result struct {
	Parts   []string        // the document's list form: texts
	Data    json.RawMessage // the document's dict form, as a drop-in gave it; nil: Parts
	Written []Written       // files that now hold Content
	Removed []string        // absolute paths of files that are gone
}

// Written is a file that a tool wrote.
type Written struct {
	Path    string // absolute
	Content string
	Created bool
}

// Text is the parts of the result in one text.
func (r Result) Text() string { return strings.Join(r.Parts, "\n") }

// PanicError is the outcome of a call whose tool panicked.
type PanicError struct {
	Tool  string
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%s broke down (%v): this is a fault of the tool, not of its arguments", e.Tool, e.Value)
}

// adding makes the tools that registered themselves, before main.
var adding []func() *Tool

// builtin are the tools by name. They are made when somebody wants one: a schema
// costs more than a gateway that runs none of them may.
var builtin = sync.OnceValue(func() map[string]*Tool {
	tools := make(map[string]*Tool, len(adding))
	for _, made := range adding {
		t := made()
		if tools[t.Name] != nil {
			panic("two tools have the name " + t.Name)
		}
		if err := t.Check(); err != nil {
			panic(err)
		}
		tools[t.Name] = t
	}
	return tools
})

// add registers a tool. A tool's file does it once:
//
//	var _ = add(&Tool{Name: ..., Description: ..., Kind: ...}, listDir)
//
// Parameters are inferred from In unless they are given; see [schema.For] for the
// tags. run receives the arguments checked and decoded.
func add[In any](t *Tool, run func(ctx context.Context, env *Env, in In) (Result, error)) *Tool {
	t.Run = func(ctx context.Context, env *Env, args json.RawMessage) (Result, error) {
		var in In
		if err := jsonexp.Unmarshal(args, &in); err != nil {
			return Result{}, fmt.Errorf("reading the arguments of %s: %w", t.Name, err)
		}
		return run(ctx, env, in)
	}
	adding = append(adding, func() *Tool {
		switch {
		case t.tolerant:
			t.Parameters = schema.Tolerant[In]()
		case t.Parameters == nil:
			t.Parameters = schema.For[In]()
		}
		return t
	})
	return t
}

// All returns the built-in tools, sorted by name.
func All() []*Tool {
	return slices.SortedFunc(maps.Values(builtin()), func(a, b *Tool) int { return cmp.Compare(a.Name, b.Name) })
}

// Lookup returns a built-in tool, nil if there is none of that name.
func Lookup(name string) *Tool { return builtin()[name] }

// Check reports what makes a tool unfit for registration: the server refuses a
// whole batch for one of these.
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

// Validate checks arguments against Parameters. The error names the argument.
// Absent arguments are an empty object's.
func (t *Tool) Validate(args json.RawMessage) error {
	t.compile.Do(func() { t.compiled, t.compileErr = protocol.CompileSchema(protocol.Raw(t.Parameters)) })
	err := t.compileErr
	if err == nil {
		err = t.compiled.Check(protocol.Raw(orEmpty(args)))
	}
	if err != nil {
		return fmt.Errorf("wrong arguments for %s: %w", t.Name, err)
	}
	return nil
}

func orEmpty(args json.RawMessage) json.RawMessage {
	if len(args) == 0 {
		return json.RawMessage("{}")
	}
	return args
}

// Call runs the tool on arguments and has exactly one outcome: the tool's own, a
// refusal of the arguments, a [PanicError], or an error that wraps
// context.DeadlineExceeded or context.Canceled, whether or not Run heeds its
// context.
func (t *Tool) Call(ctx context.Context, env *Env, args json.RawMessage) (Result, error) {
	if err := t.Validate(args); err != nil {
		return Result{}, err
	}
	timeout := cmp.Or(t.Timeout, env.Timeout, DefaultTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()

	type outcome struct {
		Result
		error
	}
	done := make(chan outcome, 1) // the late one of an abandoned call finds room here
	go func() {
		out := outcome{error: &PanicError{Tool: t.Name, Value: "its goroutine ended"}}
		defer func() {
			if r := recover(); r != nil {
				out = outcome{error: &PanicError{t.Name, r, debug.Stack()}}
			}
			done <- out
		}()
		out.Result, out.error = t.Run(ctx, env, orEmpty(args))
	}()
	select {
	case out := <-done:
		return out.Result, t.worded(ctx, timeout, out.error)
	case <-ctx.Done():
	}
	late := time.NewTimer(lateness)
	defer late.Stop()
	select {
	case out := <-done:
		return out.Result, t.worded(ctx, timeout, out.error)
	case <-late.C:
		return Result{}, t.worded(ctx, timeout, ctx.Err())
	}
}

// errTimeout is the cause of a context that Call itself ended.
var errTimeout = errors.New("timeout of the tool")

// worded says of an error whose call was ended how it was; others it returns as
// they are.
func (t *Tool) worded(ctx context.Context, timeout time.Duration, err error) error {
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
	if !errors.Is(err, end) {
		what += ": " + err.Error()
	}
	return ended{t.Name + " " + what, end}
}

// ended is a call's error with the end of its context as its cause.
type ended struct {
	text string
	end  error
}

func (e ended) Error() string { return e.text }
func (e ended) Unwrap() error { return e.end }

// files gives access to the files of the workspace, and to others as far as the
// policy allows.
func (e *Env) files() workspace.Files {
	return workspace.Files{Root: e.Root, Outside: e.Outside, Protected: e.Protected, Sources: e.Sources,
		Secrets: e.Secrets}
}

// write makes a file hold content and says so.
func (e *Env) write(at *workspace.Place, content string) (Result, error) {
	created, err := at.Write(content)
	if err != nil {
		return Result{}, err
	}
	var res Result
	e.wrote(&res, Written{at.Path, content, created}, at.Name)
	return res, nil
}

// edit changes files, all or none, as change says, and says so file by file. What
// somebody else writes in between is not lost: then change is asked again.
func (e *Env) edit(ctx context.Context, change func(*workspace.Edits) error) (Result, error) {
	for {
		edits := e.files().Edits()
		err := change(edits)
		var res Result
		if err == nil {
			res, err = e.commit(edits)
		}
		edits.Close()
		if err == nil {
			return res, nil
		}
		if !errors.Is(err, workspace.ErrChanged) || ctx.Err() != nil {
			return Result{}, fmt.Errorf("nothing was changed: %w", err)
		}
	}
}

func (e *Env) commit(edits *workspace.Edits) (Result, error) {
	changes, err := edits.Commit()
	if err != nil {
		return Result{}, err
	}
	if len(changes) == 0 {
		return text("Nothing to change: the files hold the text already."), nil
	}
	var res Result
	for _, c := range changes {
		if c.Now == nil {
			res.Removed = append(res.Removed, c.At.Path)
			res.Parts = append(res.Parts, "Deleted "+c.At.Name+".")
			continue
		}
		e.wrote(&res, Written{c.At.Path, *c.Now, c.Created}, c.At.Name)
	}
	return res, nil
}

// wrote enters a file that was written into the result and tells Sync.
func (e *Env) wrote(res *Result, w Written, name string) {
	verb := "Changed "
	if w.Created {
		verb = "Created "
	}
	res.Parts = append(res.Parts, verb+name+".")
	res.Written = append(res.Written, w)
	if e.Sync != nil {
		e.Sync(w.Path, w.Content)
	}
}

// maxFiles is how many files a call may ask about.
const maxFiles = 50

// eachFile answers for several files, with a part for each. What went wrong with
// one is its part, unless that is so with all.
func eachFile(paths []string, answer func(path string) (string, error)) (Result, error) {
	if n := len(paths); n == 0 || n > maxFiles {
		return Result{}, fmt.Errorf("filePaths names %d files: name 1 to %d", n, maxFiles)
	}
	var res Result
	var errs []error
	for _, path := range paths {
		said, err := answer(path)
		if err != nil {
			said = err.Error()
			errs = append(errs, err)
		}
		res.Parts = append(res.Parts, said)
	}
	if len(errs) == len(paths) {
		return Result{}, errors.New(strings.Join(res.Parts, "; "))
	}
	return res, nil
}

// text is the result of a tool that says something.
func text(parts ...string) Result { return Result{Parts: parts} }
