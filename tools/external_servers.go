package tools

import (
	"context"
	"fmt"
	"strings"

	"tapgw/tools/internal/code"
	"tapgw/tools/internal/lsp"
)

// servers are the language servers that tools ask.
var servers lsp.Pool

// Close ends what tools keep running between calls. They still work after it, and
// start anew what they need.
func Close() { servers.Close() }

// source is the workspace as questions about its code see it; done lets go of it.
func (e *Env) source(ctx context.Context) (w code.Workspace, done func(), err error) {
	tree, done, err := e.tree(ctx)
	if err != nil {
		return w, nil, err
	}
	files, err := tree.Files(ctx, nil)
	if err != nil {
		done()
		return w, nil, err
	}
	return code.Workspace{Tree: tree, Files: files, Servers: &servers}, done, nil
}

// paths finds the real paths of files that a tool may read.
func (e *Env) paths(ctx context.Context, names []string) (paths []string, err error) {
	for _, name := range names {
		at, err := e.files().At(ctx, name, false)
		if err != nil {
			return nil, err
		}
		file, _, err := at.Open()
		if err == nil {
			err = file.Close()
		}
		at.Close()
		if err != nil {
			return nil, err
		}
		paths = append(paths, at.Real())
	}
	return paths, nil
}

// maxAnswerLines is how many lines an answer about code has.
const maxAnswerLines = 200

// told is an answer in one text.
func told(head string, a code.Answer) Result {
	var b strings.Builder
	b.WriteString(head)
	if len(a.Notes) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(a.Notes, "; "))
	}
	for _, line := range a.Lines[:min(len(a.Lines), maxAnswerLines)] {
		b.WriteString("\n" + line)
	}
	if n := len(a.Lines) - maxAnswerLines; n > 0 {
		fmt.Fprintf(&b, "\n[%d more are not shown: ask about less at a time]", n)
	}
	return text(b.String())
}
