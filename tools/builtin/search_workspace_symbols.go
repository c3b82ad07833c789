package builtin

import (
	"context"
	"errors"
	"strings"

	"tapgw/internal/visible"
	"tapgw/tools"
)

type searchWorkspaceSymbolsIn struct {
	SymbolName string `json:"symbolName" jsonschema:"The name of a function, type, method or variable, or a part of it."`
}

var _ = add(&tools.Tool{
	Name: "search_workspace_symbols",
	Description: "Find where functions, types, methods and variables are declared in the " +
		"workspace, by their name " +
		"or a part of it, one PATH:LINE: KIND NAME a line. " +
		"Language servers are asked where they are installed; else declarations are searched " +
		"for, and the answer " +
		"says so.",
	Kind: tools.Read,
}, searchWorkspaceSymbols)

func searchWorkspaceSymbols(
	ctx context.Context, env *access, in searchWorkspaceSymbolsIn,
) (tools.Result, error) {
	symbol := strings.TrimSpace(in.SymbolName)
	if symbol == "" {
		return tools.Result{}, errors.New("symbolName is empty: give a name or a part of one")
	}
	w, done, err := env.codeWorkspace(ctx)
	if err != nil {
		return tools.Result{}, err
	}
	defer done()
	a, err := w.Symbols(ctx, symbol)
	if err != nil {
		return tools.Result{}, err
	}
	if len(a.Lines) == 0 {
		return answerResult("No symbol "+symbol+" was found", a), nil
	}
	return answerResult(visible.Count(len(a.Lines), "symbol")+" for "+symbol, a), nil
}
