package tools

import "context"

type createFileIn struct {
	FilePath string `json:"filePath" jsonschema:"The file to create: an absolute path, or one relative to the workspace. Missing directories are created."`
	Content  string `json:"content" jsonschema:"The whole text of the file."`
}

// The language server's own edit tools write through this one, and may send more
// arguments than its schema names.
var _ = add(&Tool{
	Name: "create_file",
	Description: "Create a file with the given text, and the directories that lead to it. A file that exists is " +
		"replaced: to change a part of it, use replace_string_in_file or apply_patch.",
	allowsExtra: true,
	Kind:        Edit,
}, createFile)

func createFile(ctx context.Context, env *Env, in createFileIn) (Result, error) {
	at, err := env.files().At(ctx, in.FilePath, true)
	if err != nil {
		return Result{}, err
	}
	defer at.Close()
	return env.write(ctx, at, in.Content)
}
