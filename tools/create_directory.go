package tools

import "context"

type createDirectoryIn struct {
	DirPath string `json:"dirPath" jsonschema:"The directory to create: an absolute path, or one relative to the workspace. Missing parents are created."`
}

var _ = add(&Tool{
	Name: "create_directory",
	Description: "Create a directory and the directories that lead to it. One that exists is left as it is. " +
		"create_file makes the directories that it needs by itself.",
	Kind: Edit,
}, createDirectory)

func createDirectory(ctx context.Context, env *Env, in createDirectoryIn) (Result, error) {
	at, err := env.files().At(ctx, in.DirPath, true)
	if err != nil {
		return Result{}, err
	}
	defer at.Close()
	created, err := env.makeDir(ctx, at)
	if err != nil {
		return Result{}, err
	}
	if !created {
		return textResult(at.Name + " exists already."), nil
	}
	return textResult("Created " + at.Name + "."), nil
}
