package builtin

import (
	"context"
	"fmt"
	"path"
	"strings"

	"tapgw/tools"
	"tapgw/tools/internal/gitstate"
)

type getChangedFilesIn struct {
	RepositoryPath     string `json:"repositoryPath,omitzero" jsonschema:"A directory in the git repository: what has changed in it is told. Default: the workspace."`
	SourceControlState string `json:"sourceControlState,omitzero" jsonschema:"Which changes to tell. Default: all." enum:"all,staged,unstaged,untracked"`
	Diffs              bool   `json:"diffs,omitzero" jsonschema:"Whether to show the changes themselves too, as a patch. Default: false."`
}

var _ = add(&tools.Tool{
	Name: "get_changed_files",
	Description: "List the files that are staged, changed, untracked or in conflict in git, and " +
		"the changes " +
		"themselves if wanted.",
	Kind: tools.Read,
}, getChangedFiles)

// maxDiff is how many bytes of a patch are shown.
const maxDiff = 48 << 10

func getChangedFiles(ctx context.Context, env *access, in getChangedFilesIn) (tools.Result, error) {
	if in.RepositoryPath == "" {
		in.RepositoryPath = "."
	}
	at, err := env.files().At(ctx, in.RepositoryPath, false)
	if err != nil {
		return tools.Result{}, err
	}
	defer at.Close()
	if _, err := at.FS(); err != nil {
		return tools.Result{}, err
	}
	dir, err := gitstate.Open(ctx, env.Root, at.Real(), env.Secrets...)
	if err != nil {
		return tools.Result{}, fmt.Errorf("asking git about %s: %w", at.Name, err)
	}
	defer dir.Close()
	state, err := dir.State(ctx)
	if err != nil {
		return tools.Result{}, fmt.Errorf("asking git about %s: %w", at.Name, err)
	}
	var res tools.Result
	for _, s := range []struct {
		state, title string
		files        []string
	}{
		{"staged", "Staged files", state.Staged},
		{"unstaged", "Unstaged changes", state.Unstaged},
		{"unstaged", "Conflicts", state.Conflicts},
		{"untracked", "Untracked files", state.Untracked},
	} {
		if wanted := in.SourceControlState; wanted != "" && wanted != "all" && wanted != s.state ||
			len(s.files) == 0 {
			continue
		}
		part := "## " + s.title + "\n" + fileList(at.Name, s.files)
		if in.Diffs && s.title != "Untracked files" && s.title != "Conflicts" {
			diff, err := dir.Diff(ctx, at.Name, s.state == "staged")
			if err != nil {
				return tools.Result{}, fmt.Errorf("asking git about %s: %w", at.Name, err)
			}
			part += "\n\n" + cutDiff(diff)
		}
		res.Parts = append(res.Parts, part)
	}
	if len(res.Parts) == 0 {
		return textResult("No changed files found."), nil
	}
	return tools.Result{Parts: []string{strings.Join(res.Parts, "\n\n")}}, nil
}

// fileList lists files by their path from the workspace, at most maxResults of them.
func fileList(dir string, files []string) string {
	shown := make([]string, 0, min(len(files), maxResults)+1)
	for _, f := range files[:min(len(files), maxResults)] {
		if dir != "." {
			from, to, renamed := strings.Cut(f, " -> ")
			if f = path.Join(dir, from); renamed {
				f += " -> " + path.Join(dir, to)
			}
		}
		shown = append(shown, f)
	}
	if n := len(files) - maxResults; n > 0 {
		shown = append(shown, fmt.Sprintf("[%d more files: name a directory in repositoryPath]", n))
	}
	return strings.Join(shown, "\n")
}

// cutDiff cuts a patch to maxDiff bytes, at the end of a line.
func cutDiff(diff string) string {
	if len(diff) <= maxDiff {
		return strings.TrimSuffix(diff, "\n")
	}
	end := strings.LastIndexByte(diff[:maxDiff], '\n')
	if end < 0 {
		end = maxDiff
	}
	return diff[:end] +
		fmt.Sprintf("\n[%d more bytes of this patch: name a directory in repositoryPath]",
			len(diff)-end)
}
