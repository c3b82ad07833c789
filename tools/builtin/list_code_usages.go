package builtin

import (
	"context"
	"errors"
	"strings"

	"tapgw/internal/visible"
	"tapgw/tools"
)

type listCodeUsagesIn struct {
	SymbolName string   `json:"symbolName" jsonschema:"The function, type, method, variable or other symbol; a method may be given as Type.method."`
	FilePaths  []string `json:"filePaths,omitzero" jsonschema:"Files in which the symbol is declared or used: it is followed from there. Default: it is looked for."`
}

var _ = add(&tools.Tool{
	Name: "list_code_usages",
	Description: "List where a symbol is declared and used in the workspace, one PATH:LINE: TEXT " +
		"a line. Use it " +
		"before changing or renaming something. " +
		"Language servers are asked where they are installed; else the word is searched for, and " +
		"the answer says so.",
	Kind: tools.Read,
}, listCodeUsages)

func listCodeUsages(ctx context.Context, env *access, in listCodeUsagesIn) (tools.Result, error) {
	symbol := strings.TrimSpace(in.SymbolName)
	if symbol == "" {
		return tools.Result{}, errors.New("symbolName is empty: name a symbol")
	}
	w, done, err := env.codeWorkspace(ctx)
	if err != nil {
		return tools.Result{}, err
	}
	defer done()
	paths, err := env.realPaths(ctx, in.FilePaths)
	if err != nil {
		return tools.Result{}, err
	}
	a, err := w.Usages(ctx, symbol, paths)
	if err != nil {
		return tools.Result{}, err
	}
	if len(a.Lines) == 0 {
		return answerResult("No usages of "+symbol+" were found", a), nil
	}
	return answerResult(visible.Count(len(a.Lines), "usage")+" of "+symbol, a), nil
}
