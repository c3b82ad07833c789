package dropin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/tools/internal/shell"
)

// Executable is a program that is run for each call: arguments as JSON on its
// stdin, the result on its stdout, in the workspace.
type Executable struct {
	Manifest *Manifest
	Env      []string
	// Log gets what it writes to stderr. nil: nobody is interested.
	Log func(file, line string)
}

// Call runs the program. Its result is one of the document's forms in JSON, or
// else the text that it wrote. Any exit code but 0 is a failure, told by what it
// wrote to stderr.
func (e Executable) Call(ctx context.Context, c Call) (Answer, error) {
	argv := e.Manifest.argv()
	name := filepath.Base(argv[0])
	stdout, stderr := shell.Output{Max: maxText}, shell.Output{Max: maxPrinted}
	said := shell.Lines{Take: func(line string) {
		if e.Log != nil {
			e.Log(argv[0], line)
		}
	}}
	exit, err := shell.Run(ctx, shell.Command{
		Args: argv, Dir: c.Root, Env: append(slices.Clone(e.Env), "WORKSPACE_ROOT="+c.Root), Input: c.Input,
		Stdout: &stdout, Stderr: tee{&stderr, &said},
	})
	said.End()
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
		return Answer{}, fmt.Errorf("%s: it wrote more than %d MB: let it answer less", name, maxText>>20)
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

// tee writes to both.
type tee struct {
	a *shell.Output
	b *shell.Lines
}

func (t tee) Write(p []byte) (int, error) {
	_, _ = t.a.Write(p)
	return t.b.Write(p)
}
