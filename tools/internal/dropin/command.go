package dropin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/tools/internal/shell"
)

// Executable is a program that runs once for each call, in the workspace. It gets the
// arguments as JSON on stdin and writes its result to stdout.
type Executable struct {
	Manifest *Manifest
	Env      []string
	// Log gets the lines that it writes to stderr. nil: they are dropped.
	Log func(file, line string)
}

// Call runs the program. The answer is its stdout: a list or dict in JSON as a Python
// tool returns it, or else plain text. Any exit code but 0 is an error with the text
// that the program wrote to stderr.
func (e Executable) Call(ctx context.Context, c Call) (Answer, error) {
	argv := e.Manifest.argv()
	name := filepath.Base(argv[0])
	stdout, stderr := shell.Output{Max: maxText}, shell.Output{Max: maxPrinted}
	lines := shell.Lines{OnLine: func(line string) {
		if e.Log != nil {
			e.Log(argv[0], line)
		}
	}}
	exit, err := shell.Run(ctx, shell.Command{
		Args: argv, Dir: c.Root, Env: append(slices.Clone(e.Env), "WORKSPACE_ROOT="+c.Root),
		Input: c.Input, Stdout: &stdout, Stderr: io.MultiWriter(&stderr, &lines),
	})
	lines.End()
	if err != nil {
		return Answer{}, err
	}
	why := strings.TrimSpace(stderr.String())
	if !exit.OK() {
		if why == "" {
			short := shell.Output{Max: maxPrinted}
			_, _ = short.Write(stdout.Bytes())
			why = strings.TrimSpace(short.String())
		}
		if why == "" {
			why = "it wrote nothing about it to stderr"
		}
		return Answer{}, fmt.Errorf("%s: %v: %s", name, exit, why)
	}
	if stdout.Cut() > 0 {
		return Answer{}, fmt.Errorf("%s: it wrote more than %d MB: let it answer less", name,
			maxText>>20)
	}
	out := bytes.TrimSpace(stdout.Bytes())
	if len(out) > 0 && (out[0] == '[' || out[0] == '{') && json.Valid(out) {
		answer, err := answerOf(out)
		if !errors.Is(err, errShape) {
			return answer, err
		}
	}
	if len(out) == 0 {
		return Answer{}, nil
	}
	return Answer{Parts: []string{stdout.String()}}, nil
}
