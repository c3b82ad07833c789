package dropin

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/proc"
	"tapgw/tools/internal/shell"
)

// runner is the program that imports the modules.
//
//go:embed runner.py
var runner string

// importLimit is how long a module may take to be imported.
const importLimit = 30 * time.Second

// stopGrace is what a process gets to end by itself.
const stopGrace = 500 * time.Millisecond

// ErrNoPython says that there is nothing to run modules with.
var ErrNoPython = errors.New("python3 is not on PATH: install Python 3.8 or newer, or name one in the config")

// Python runs Python modules.
type Python struct {
	Path string   // interpreter; "": python3 on PATH
	Env  []string // environment of the modules
	// Log gets what they print. nil: nobody is interested.
	Log func(file, line string)

	limit time.Duration // 0: importLimit
}

// Probed is what a probe found out about a file: it is a tool, no tool at all
// (all zero), or a fault.
type Probed struct {
	Spec  *Spec
	Fault *Fault
}

// MayBeTool reports whether Python source can make both names that a tool has.
// Scripts that happen to lie beside tools are not run to find that out.
func MayBeTool(source []byte) bool {
	return bytes.Contains(source, []byte("SCHEMA")) && bytes.Contains(source, []byte("execute")) ||
		bytes.Contains(source, []byte("import *"))
}

// Interpreter finds the program that runs modules.
func (p Python) Interpreter() (string, error) {
	name := p.Path
	if name == "" {
		name = "python3"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if p.Path != "" {
			return "", fmt.Errorf("%s cannot be run: %w", p.Path, err)
		}
		return "", ErrNoPython
	}
	return path, nil
}

// Probe imports files of one directory and tells what each is, in their order, and
// which interpreter to use from now on: python3 may be a script that looks for it
// each time. One process imports them all; one that takes it down costs a further
// process, not the others.
func (p Python) Probe(ctx context.Context, interpreter string, files []string) (probed []Probed, real string,
	err error) {
	for len(probed) < len(files) {
		found, python, err := p.probe(ctx, interpreter, files[len(probed):])
		if err != nil {
			return nil, "", err
		}
		if python != "" {
			interpreter = python
		}
		probed = append(probed, found...)
	}
	return probed, interpreter, nil
}

// probe probes files until one takes the process down; it returns that of as many
// as it was through with, at least one.
func (p Python) probe(ctx context.Context, interpreter string, files []string) ([]Probed, string, error) {
	limit := p.limit
	if limit == 0 {
		limit = importLimit
	}
	frames := make(chan frame, 2*len(files)+1) // all that a runner can send
	broken := make(chan error, 1)
	proc, err := p.start(interpreter, "probe", files, &splitter{
		take: func(f frame) {
			select {
			case frames <- f:
			default: // a module speaks for the runner
			}
		},
		fail: func(err error) { broken <- err },
	})
	if err != nil {
		return nil, "", err
	}
	defer proc.Stop()

	var found []Probed
	var python string
	each := time.NewTimer(limit)
	defer each.Stop()
	take := func(f frame) {
		switch {
		case f.Python != "":
			python = f.Python
		case f.File != "":
			each.Reset(limit)
		case f.Skip:
			found = append(found, Probed{})
		case f.Schema != nil:
			spec, err := specOf(files[len(found)], f.Schema)
			found = append(found, Probed{spec, err})
		case f.Fault != nil:
			found = append(found, Probed{Fault: fault(f.Line, "%s", *f.Fault)})
		}
	}
	for len(found) < len(files) {
		var reason string
		select {
		case f := <-frames:
			take(f)
			continue
		case err := <-broken:
			reason = err.Error()
		case <-each.C:
			reason = fmt.Sprintf("importing it takes more than %v", limit)
		case <-ctx.Done():
			return nil, "", ctx.Err()
		case <-proc.Done():
			for len(frames) > 0 && len(found) < len(files) {
				take(<-frames)
			}
			if python == "" {
				return nil, "", fmt.Errorf("%s does not run: %s", interpreter, ended(proc))
			}
			reason = "importing it ended the process: " + ended(proc)
		}
		if len(found) < len(files) {
			found = append(found, Probed{Fault: fault(0, "%s", reason)})
		}
		break
	}
	return found, python, nil
}

// start starts a runner.
func (p Python) start(interpreter, mode string, files []string, out *splitter) (*proc.Process, error) {
	process, err := proc.Start(proc.Command{
		Path: interpreter, Args: append([]string{"-B", "-c", runner, mode}, files...),
		Env: p.Env, Stdout: out, Grace: stopGrace,
		OnLine: func(_ proc.Stream, line string) {
			if p.Log != nil {
				p.Log(files[0], line)
			}
		},
	})
	if err == nil {
		shell.Expendable(process.PID())
	}
	return process, err
}

// ended says how a process ended and what it said last.
func ended(p *proc.Process) string {
	how := "exit code 0"
	if err := p.Err(); err != nil {
		how = strings.Replace(err.Error(), "exit status", "exit code", 1)
	}
	out := shell.Output{Max: maxPrinted}
	for _, line := range p.Tail() {
		_, _ = out.Write([]byte(line + "\n"))
	}
	if said := strings.TrimSpace(out.String()); said != "" {
		return how + "\n" + said
	}
	return how
}

var setsSchema = lazyregexp.New(`(?m)^SCHEMA\b`)

// schemaLine finds where a module sets its SCHEMA, 0 if it is not seen to.
func schemaLine(file string) int {
	source, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	at := setsSchema.FindIndex(source)
	if at == nil {
		return 0
	}
	return lineAt(source, at[0])
}

// lineAt is the number of the line that holds a byte.
func lineAt(text []byte, offset int) int {
	return 1 + bytes.Count(text[:min(offset, len(text))], []byte("\n"))
}

// specOf reads a module's SCHEMA.
func specOf(file string, raw json.RawMessage) (*Spec, *Fault) {
	var s struct {
		Name        any             `json:"name"`
		Description any             `json:"description"`
		Input       json.RawMessage `json:"inputSchema"`
		Kind        any             `json:"kind"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fault(0, "reading SCHEMA: %v", err)
	}
	spec := &Spec{Parameters: s.Input, Line: schemaLine(file)}
	if s.Input == nil {
		spec.Parameters = noParameters
	}
	for _, field := range []struct {
		key      string
		value    any
		to       *string
		optional bool
	}{{"name", s.Name, &spec.Name, false}, {"description", s.Description, &spec.Description, false},
		{"kind", s.Kind, &spec.Kind, true}} {
		text, ok := field.value.(string)
		if field.value == nil && field.optional {
			continue
		}
		if !ok {
			return nil, fault(spec.Line, `SCHEMA[%q] must be there and be a text`, field.key)
		}
		*field.to = text
	}
	return spec, nil
}
