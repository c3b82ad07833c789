package builtin

import (
	"context"

	"tapgw/tools"
)

type createDirectoryIn struct {
	DirPath string `json:"dirPath" jsonschema:"The directory to create: an absolute path, or one relative to the workspace. Missing parents are created."`
}

var _ = add(&tools.Tool{
	Name: "create_directory",
	Description: "Create a directory and the directories that lead to it. One that exists is " +
		"left as it is. " +
		"create_file makes the directories that it needs by itself.",
	Kind: tools.Edit,
}, createDirectory)

func createDirectory(ctx context.Context, env *access, in createDirectoryIn) (tools.Result, error) {
	at, err := env.files().At(ctx, in.DirPath, true)
	if err != nil {
		return tools.Result{}, err
	}
	defer at.Close()
	created, err := env.makeDir(ctx, at)
	if err != nil {
		return tools.Result{}, err
	}
	if !created {
		return textResult(at.Name + " exists already."), nil
	}
	return textResult("Created " + at.Name + "."), nil
}
