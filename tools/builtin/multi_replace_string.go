package builtin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tapgw/tools"
	"tapgw/tools/internal/workspace"
)

type multiReplaceIn struct {
	Explanation  string        `json:"explanation" jsonschema:"A short explanation of the change as a whole."`
	Replacements []replacement `json:"replacements" jsonschema:"The replacements, made in this order: each sees what those before it did to its file."`
}

type replacement struct {
	FilePath    string `json:"filePath" jsonschema:"The file to change: an absolute path, or one relative to the workspace."`
	OldString   string `json:"oldString" jsonschema:"The exact text to replace, white space included. It must occur exactly once in the file."`
	NewString   string `json:"newString" jsonschema:"The text to put in its place."`
	Explanation string `json:"explanation,omitzero" jsonschema:"A short explanation of this replacement."`
}

var _ = add(&tools.Tool{
	Name: "multi_replace_string",
	Description: "Make several replacements, in one file or in several, all or none: as " +
		"replace_string_in_file, but " +
		"when one of them is wrong nothing is changed.",
	Kind: tools.Edit,
}, multiReplace)

func multiReplace(ctx context.Context, env *access, in multiReplaceIn) (tools.Result, error) {
	if len(in.Replacements) == 0 {
		return tools.Result{}, errors.New("replacements is empty: give at least one")
	}
	return env.edit(ctx, func(edits *workspace.Edits) error {
		var faults []string // of all edits, so that the model can correct them at once
		for i, r := range in.Replacements {
			if err := replaceIn(ctx, edits, r.FilePath, r.OldString, r.NewString); err != nil {
				faults = append(faults, fmt.Sprintf("replacement %d of %d: %v", i+1,
					len(in.Replacements), err))
			}
		}
		if len(faults) > 0 {
			return errors.New(strings.Join(faults, "; "))
		}
		return nil
	})
}
