package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"tapgw/internal/lazyregexp"
	"tapgw/tools"
)

type insertEditIn struct {
	FilePath    string `json:"filePath" jsonschema:"The file to write: an absolute path, or one relative to the workspace."`
	Code        string `json:"code" jsonschema:"The whole new text of the file, from its first line to its last. Nothing may be left out."`
	Explanation string `json:"explanation,omitzero" jsonschema:"A short explanation of the edit."`
}

// The language server's own edit tools write whole files through this one, and may
// send more arguments than its schema names.
var _ = add(&tools.Tool{
	Name: "insert_edit_into_file",
	Description: "Write the whole new text of a file. To change a part of a file, use " +
		"replace_string_in_file or " +
		"apply_patch.",
	Kind: tools.Edit,
}, insertEdit, allowsExtra)

// leftOut matches the comments with which models abbreviate text that is to stay.
var leftOut = lazyregexp.New(
	`(?im)^\s*(//|#|--|/\*|<!--|;|%)?\s*(\.\.\.|…)\s*existing code\s*(\.\.\.|…)`)

func insertEdit(ctx context.Context, env *access, in insertEditIn) (tools.Result, error) {
	at, err := env.files().At(ctx, in.FilePath, true)
	if err != nil {
		return tools.Result{}, err
	}
	defer at.Close()
	if leftOut.MatchString(in.Code) {
		old, err := at.ReadText()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return tools.Result{}, err
		}
		if !leftOut.MatchString(old) {
			return tools.Result{},
				fmt.Errorf("the code leaves out parts of %s (%q): it was not written; "+
					"send the whole text, or use replace_string_in_file", at.Name,
					leftOut.FindString(in.Code))
		}
	}
	return env.write(ctx, at, in.Code)
}
