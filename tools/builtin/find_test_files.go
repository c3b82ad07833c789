package builtin

import (
	"context"
	"fmt"
	"strings"

	"tapgw/tools"
	"tapgw/tools/internal/testfiles"
)

type findTestFilesIn struct {
	FilePaths []string `json:"filePaths" jsonschema:"Sources whose tests are wanted, or tests whose sources are wanted: absolute paths or relative to the workspace."`
}

var _ = add(&tools.Tool{
	Name: "find_test_files",
	Description: "Find the tests of source files, or the sources that tests are of, by the " +
		"naming conventions of " +
		"Go, Python, JavaScript, TypeScript, Java, Kotlin, Rust, C#, Ruby and others.",
	Kind: tools.Read,
}, findTestFiles)

func findTestFiles(ctx context.Context, env *access, in findTestFilesIn) (tools.Result, error) {
	tree, done, err := env.searchTree(ctx)
	if err != nil {
		return tools.Result{}, err
	}
	defer done()
	all, err := tree.Files(ctx, nil)
	if err != nil {
		return tools.Result{}, err
	}
	return eachFile(in.FilePaths, func(path string) (string, error) {
		at, err := env.files().At(ctx, path, false)
		if err != nil {
			return "", err
		}
		defer at.Close()
		if _, err := at.Stat(); err != nil {
			return "", err
		}
		found, isTest, convention, ok := testfiles.Find(at.Name, all)
		if source, err := at.ReadText(); err == nil && strings.HasSuffix(at.Name, ".rs") &&
			strings.Contains(source, "#[cfg(test)]") {
			found = append(found, at.Name+" (#[cfg(test)] in the file itself)")
		}
		what := "tests"
		if isTest {
			what = "sources"
		}
		switch {
		case !ok:
			return "", fmt.Errorf("%s: no conventions are known for tests of such files", at.Name)
		case len(found) == 0 && isTest:
			return at.Name + ": no source of this name was found.", nil
		case len(found) == 0:
			return fmt.Sprintf("%s: no test of it was found. By convention it is %s.", at.Name,
				convention), nil
		}
		return fmt.Sprintf("%s: %s:\n  %s", at.Name, what, strings.Join(found, "\n  ")), nil
	})
}
