package builtin

import (
	"context"
	"fmt"
	"strings"

	"tapgw/tools"
	"tapgw/tools/internal/code"
	"tapgw/tools/internal/lsp"
)

// servers are the running language servers that tools ask about code.
var servers lsp.Pool

// Close stops the language servers that tools keep running between calls, and waits
// for them. Tools still work afterwards: they start a server again when they need it.
func Close() { servers.Close() }

// codeWorkspace opens the workspace for questions about its code. The caller calls
// done when it has finished with it.
func (e *access) codeWorkspace(ctx context.Context) (w code.Workspace, done func(), err error) {
	tree, done, err := e.searchTree(ctx)
	if err != nil {
		return w, nil, err
	}
	files, err := tree.Files(ctx, nil)
	if err != nil {
		done()
		return w, nil, err
	}
	return code.Workspace{
		Tree:      tree,
		Files:     files,
		Servers:   &servers,
		Languages: lsp.With(e.LanguageServers),
	}, done, nil
}

// realPaths resolves files that a tool may read to paths without symbolic links.
func (e *access) realPaths(ctx context.Context, names []string) (paths []string, err error) {
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

// answerResult formats an answer about code: a headline with its notes, then its lines.
func answerResult(head string, a code.Answer) tools.Result {
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
	return textResult(b.String())
}
