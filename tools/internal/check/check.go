// Package check finds errors in source files without a language server. It runs the language's own
// compiler, if one is installed outside of the workspace, in a way that reads the files and does
// not execute them.
package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/scanner"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tapgw/internal/lazyregexp"
	"tapgw/tools/internal/program"
	"tapgw/tools/internal/shell"
)

// Problem is an error at a place in a file.
type Problem struct {
	Path    string // absolute
	Line    int    // from 1
	Col     int    // from 1; 0: unknown
	Message string
}

// Files checks files of a workspace that all have one ending, given as absolute paths.
// by names the compiler for the model. The error says why the files could not be
// checked, such as a compiler that is not installed.
func Files(
	ctx context.Context, workspace string, paths []string,
) (problems []Problem, by string, err error) {
	switch ext := filepath.Ext(paths[0]); ext {
	case ".go":
		if problems, err := vet(ctx, workspace, paths); err == nil {
			return problems, "go vet", nil
		}
		return parseGo(paths), "the Go parser (syntax only)", nil
	case ".py", ".pyi":
		problems, err := compilePython(ctx, workspace, paths)
		return problems, "the Python compiler (syntax only)", err
	case ".js", ".mjs", ".cjs":
		problems, err := checkNode(ctx, workspace, paths)
		return problems, "node --check (syntax only)", err
	case ".ts", ".tsx", ".mts", ".cts", ".jsx":
		return nil, "",
			errors.New("typescript-language-server is not on PATH outside of the workspace")
	default:
		return nil, "", fmt.Errorf("nothing here checks %q files", ext)
	}
}

// maxOutput is how many bytes of a compiler's output are read.
const maxOutput = 1 << 20

// run runs a compiler and returns its outputs; ok is false for an exit code but 0.
func run(
	ctx context.Context, dir string, env []string, input []byte, argv ...string,
) (stdout, stderr string, ok bool, err error) {
	out, errs := shell.Output{Max: maxOutput}, shell.Output{Max: maxOutput}
	exit, err := shell.Run(ctx, shell.Command{
		Args: argv, Dir: dir, Input: input, Stdout: &out, Stderr: &errs,
		Env: env,
	})
	return out.String(), errs.String(), exit.OK(), err
}

// vetLine matches a problem that go vet or the compiler reports.
var vetLine = lazyregexp.New(`^(?:vet: )?(\S.*\.go):(\d+):(?:(\d+):)? (.+)$`)

// vet runs go vet on the packages of files. The error says that they can't be built
// here, for example because they belong to no module.
func vet(ctx context.Context, workspace string, paths []string) ([]Problem, error) {
	path, env, err := program.Go(ctx, workspace)
	if err != nil {
		return nil, err
	}
	env = append(env, "GOPROXY=off") // a check must not download modules
	var problems []Problem
	var dirs []string
	for _, path := range paths {
		if dir := filepath.Dir(path); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		// With -trimpath, a cached result would name the files of another directory.
		_, said, ok, err := run(ctx, dir, env, nil, path, "vet", "-buildvcs=false",
			"-trimpath=false", ".")
		if err != nil {
			return nil, err
		}
		var found int
		for line := range strings.SplitSeq(said, "\n") {
			m := vetLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			found++
			path := m[1]
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			if slices.Contains(paths, path) {
				problems = append(problems, Problem{path, number(m[2]), number(m[3]), m[4]})
			}
		}
		if !ok && found == 0 {
			return nil, errors.New(strings.TrimSpace(said))
		}
	}
	return problems, nil
}

// find finds a compiler that takes the place of a language server.
func find(name, server, workspace string) (string, error) {
	path, err := program.Find(name, workspace)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("neither %s nor %s is on PATH outside of the workspace", server, name)
	}
	return path, err
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// parseGo parses Go files, which finds errors of the syntax only.
func parseGo(paths []string) (problems []Problem) {
	for _, path := range paths {
		_, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if list, ok := errors.AsType[scanner.ErrorList](err); ok {
			for _, e := range list {
				problems = append(problems, Problem{path, e.Pos.Line, e.Pos.Column, e.Msg})
			}
		} else if err != nil {
			problems = append(problems, Problem{path, 1, 0, err.Error()})
		}
	}
	return problems
}

// compileScript is a Python program that compiles files without writing or running
// anything.
const compileScript = `
import json, sys, tokenize, warnings
warnings.simplefilter("ignore")
for path in json.load(sys.stdin):
    try:
        with tokenize.open(path) as f:
            compile(f.read(), path, "exec", dont_inherit=True)
    except SyntaxError as e:
        message = "%s: %s" % (type(e).__name__, e.msg)
        print(json.dumps({"Path": path, "Line": e.lineno or 1, "Col": e.offset or 0, "Message": message}))
    except Exception as e:
        print(json.dumps({"Path": path, "Line": 1, "Message": str(e)}))
`

// compilePython compiles Python files, which finds errors of the syntax only.
func compilePython(
	ctx context.Context, workspace string, paths []string,
) (problems []Problem, err error) {
	python, err := find("python3", "pyright-langserver", workspace)
	if err != nil {
		return nil, err
	}
	input, err := json.Marshal(paths)
	if err != nil {
		return nil, err
	}
	out, said, ok, err := run(ctx, program.Dir, program.Environ(workspace), input, python, "-I",
		"-c", compileScript)
	if err == nil && !ok {
		err = fmt.Errorf("running python3: %s", strings.TrimSpace(said))
	}
	for line := range strings.Lines(out) {
		var p Problem
		if err == nil && json.Unmarshal([]byte(line), &p) == nil {
			problems = append(problems, p)
		}
	}
	return problems, err
}

// nodeLine matches the file and the line in the output of node.
var nodeLine = lazyregexp.New(`(?m)^(?:file://)?(/.*):(\d+)$`)

// nodeError matches the error in the output of node.
var nodeError = lazyregexp.New(`(?m)^\w*Error: .*$`)

// checkNode runs node --check on each file.
func checkNode(
	ctx context.Context, workspace string, paths []string,
) (problems []Problem, err error) {
	node, err := find("node", "typescript-language-server", workspace)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		_, said, ok, err := run(ctx, program.Dir, program.Environ(workspace), nil, node, "--check",
			path)
		if err != nil {
			return nil, err
		}
		if ok {
			continue
		}
		p := Problem{Path: path, Line: 1, Message: strings.TrimSpace(said)}
		if m := nodeLine.FindStringSubmatch(said); m != nil {
			p.Line = number(m[2])
		}
		if m := nodeError.FindString(said); m != "" {
			p.Message = m
		}
		problems = append(problems, p)
	}
	return problems, nil
}
