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

// Finding out which Python files are tools, in a process of their own.

// runner is the Python program that imports the modules. names has the modules that they may
// import.
var (
	//go:embed runner.py
	runner string
	//go:embed names.py
	names string
)

// importLimit is how long the import of a module may take.
const importLimit = 30 * time.Second

// stopGrace is how long a process may take to end by itself.
const stopGrace = 500 * time.Millisecond

// errNoPython means that there is no interpreter.
var errNoPython = errors.New(
	"python3 is not on PATH: install Python 3.8 or newer, or name one in the config")

// Python runs Python modules.
type Python struct {
	Path string   // interpreter; "": python3 on PATH
	Env  []string // environment of the modules
	// Log gets the lines that the modules print. Without Log they are dropped.
	Log func(file, line string)

	limit time.Duration // 0: importLimit
}

// Probed is the result of a probe for one file: Spec for a tool, Fault for a broken tool, and both
// nil for a file that is no tool.
type Probed struct {
	Spec  *Spec
	Fault *Fault
}

var schemaWord = lazyregexp.New(`\bSCHEMA\b`)

// MayBeTool reports whether Python source is the source of a tool or was meant to be: it mentions
// SCHEMA, or may import it. Other scripts beside tools are never looked at.
func MayBeTool(source []byte) bool {
	return schemaWord.FindIndex(source) != nil || bytes.Contains(source, []byte("import *"))
}

// Interpreter finds the program that runs modules: Path, or python3 on PATH. The error tells the
// user which program to install.
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
		return "", errNoPython
	}
	return path, nil
}

// Probe imports the files of one directory and returns the result for each, in their order. It also
// returns the interpreter to use from now on, because python3 may be a script that looks for it
// each time. One process imports all files; after a file that ends the process, a new one goes on
// with the next file.
func (p Python) Probe(
	ctx context.Context, interpreter string, files []string,
) (probed []Probed, realPath string, err error) {
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

// probe imports files in one process until a file ends it. It returns the results up
// to that file, at least one.
func (p Python) probe(
	ctx context.Context, interpreter string, files []string,
) ([]Probed, string, error) {
	limit := p.limit
	if limit == 0 {
		limit = importLimit
	}
	frames := make(chan frame, 2*len(files)+1) // as many as a runner sends
	broken := make(chan error, 1)
	process, err := p.start(interpreter, "probe", files, &splitter{
		onFrame: func(f frame) {
			select {
			case frames <- f:
			default: // a module imitates the runner
			}
		},
		onFault: func(err error) { broken <- err },
	})
	if err != nil {
		return nil, "", err
	}
	defer process.Stop()

	results := probeResults{files: files}
	timer := time.NewTimer(limit) // for the import of one file
	defer timer.Stop()
	for !results.areComplete() {
		var reason string
		select {
		case f := <-frames:
			if f.File != "" {
				timer.Reset(limit)
			}
			results.add(f)
			continue
		case err := <-broken:
			reason = err.Error()
		case <-timer.C:
			reason = fmt.Sprintf("importing it takes more than %v", limit)
		case <-ctx.Done():
			return nil, "", ctx.Err()
		case <-process.Done():
			for len(frames) > 0 && !results.areComplete() {
				results.add(<-frames)
			}
			if results.python == "" {
				return nil, "", fmt.Errorf("%s does not run: %s", interpreter, endText(process))
			}
			reason = "importing it ended the process: " + endText(process)
		}
		if !results.areComplete() {
			results.found = append(results.found, Probed{Fault: fault(0, "%s", reason)})
		}
		break
	}
	return results.found, results.python, nil
}

// probeResults collects the frames of a probe.
type probeResults struct {
	files  []string
	found  []Probed // of the first files
	python string   // the interpreter that runs; "": unknown yet
}

func (r *probeResults) areComplete() bool { return len(r.found) == len(r.files) }

func (r *probeResults) add(f frame) {
	switch {
	case f.Python != "":
		r.python = f.Python
	case f.Skip:
		r.found = append(r.found, Probed{})
	case f.Schema != nil:
		spec, err := specOf(r.files[len(r.found)], f.Schema)
		r.found = append(r.found, Probed{spec, err})
	case f.Fault != nil:
		r.found = append(r.found, Probed{Fault: fault(f.Line, "%s", *f.Fault)})
	}
}

// start starts a runner.
func (p Python) start(
	interpreter, mode string, files []string, out *splitter,
) (*proc.Process, error) {
	process, err := proc.Start(proc.Command{
		Path: interpreter, Args: append([]string{"-B", "-c", runner + names + "main()\n", mode},
			files...),
		Env: p.Env, Stdout: out, Grace: stopGrace, Whole: true,
		OnLine: func(_ proc.Stream, line string) {
			if p.Log != nil {
				p.Log(files[0], line)
			}
		},
	})
	if err == nil {
		shell.EndFirst(process.PID())
	}
	return process, err
}

// endText describes how a process ended, with the last lines that it printed.
func endText(p *proc.Process) string {
	how := "exit code 0"
	if err := p.Err(); err != nil {
		how = strings.Replace(err.Error(), "exit status", "exit code", 1)
	}
	out := shell.Output{Max: maxPrinted}
	for _, line := range p.Tail() {
		_, _ = out.Write([]byte(line + "\n"))
	}
	if printed := strings.TrimSpace(out.String()); printed != "" {
		return how + "\n" + printed
	}
	return how
}

var setsSchema = lazyregexp.New(`(?m)^SCHEMA\b`)

// schemaLine finds the line on which a module sets SCHEMA, or returns 0.
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
	}{
		{"name", s.Name, &spec.Name, false},
		{"description", s.Description, &spec.Description, false},
		{"kind", s.Kind, &spec.Kind, true},
	} {
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
