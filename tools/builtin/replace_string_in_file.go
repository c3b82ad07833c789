package builtin

import (
	"context"

	"tapgw/tools"
	"tapgw/tools/internal/edit"
	"tapgw/tools/internal/workspace"
)

type replaceStringIn struct {
	FilePath    string `json:"filePath" jsonschema:"The file to change: an absolute path, or one relative to the workspace."`
	OldString   string `json:"oldString" jsonschema:"The exact text to replace, white space included. It must occur exactly once in the file: add lines before and after it until it does."`
	NewString   string `json:"newString" jsonschema:"The text to put in its place."`
	Explanation string `json:"explanation" jsonschema:"A short explanation of the change."`
}

var _ = add(&tools.Tool{
	Name: "replace_string_in_file",
	Description: "Replace a text that occurs exactly once in a file. Where it occurs never or " +
		"several times nothing " +
		"is changed, and the answer says on which lines it stands.",
	Kind: tools.Edit,
}, replaceString)

func replaceString(ctx context.Context, env *access, in replaceStringIn) (tools.Result, error) {
	return env.edit(ctx, func(edits *workspace.Edits) error {
		return replaceIn(ctx, edits, in.FilePath, in.OldString, in.NewString)
	})
}

// replaceIn adds one replacement to the edits.
func replaceIn(ctx context.Context, edits *workspace.Edits, path, oldText, newText string) error {
	c, err := edits.At(ctx, path)
	if err != nil {
		return err
	}
	now, err := c.Text()
	if err != nil {
		return err
	}
	changed, err := edit.Replace(c.At.Name, now, oldText, newText)
	if err != nil {
		return err
	}
	c.Now = &changed
	return nil
}
