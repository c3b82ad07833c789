package builtin

import (
	"context"

	"tapgw/tools"
)

type createFileIn struct {
	FilePath string `json:"filePath" jsonschema:"The file to create: an absolute path, or one relative to the workspace. Missing directories are created."`
	Content  string `json:"content" jsonschema:"The whole text of the file."`
}

// The language server's own edit tools write through this one, and may send more
// arguments than its schema names.
var _ = add(&tools.Tool{
	Name: "create_file",
	Description: "Create a file with the given text, and the directories that lead to it. A file " +
		"that exists is " +
		"replaced: to change a part of it, use replace_string_in_file or apply_patch.",
	Kind: tools.Edit,
}, createFile, allowsExtra)

func createFile(ctx context.Context, env *access, in createFileIn) (tools.Result, error) {
	at, err := env.files().At(ctx, in.FilePath, true)
	if err != nil {
		return tools.Result{}, err
	}
	defer at.Close()
	return env.write(ctx, at, in.Content)
}
