package builtin

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/internal/taptest/hostilegit"
	"tapgw/tools"
)

// A repository that came whole, with its .git, leads no tool that uses git out of the workspace:
// not by its configuration, its index, its links or a .git of another tree, and the environment
// does not either. The same counts for a repository within the workspace.
func TestHostileRepositories(t *testing.T) {
	for _, tree := range hostilegit.Trees(t) {
		t.Run(tree.Name, func(t *testing.T) {
			outside := filepath.Join(filepath.Dir(tree.Dir), "outside")
			t.Setenv("GIT_DIR", filepath.Join(outside, "private", ".git"))
			t.Setenv("GIT_WORK_TREE", outside)
			t.Setenv("GIT_CONFIG_COUNT", "1")
			t.Setenv("GIT_CONFIG_KEY_0", "core.worktree")
			t.Setenv("GIT_CONFIG_VALUE_0", outside)
			for _, at := range []struct {
				root string
				in   args
			}{
				{tree.Dir, args{"diffs": true}},
				{filepath.Dir(tree.Dir),
					args{"diffs": true, "repositoryPath": filepath.Base(tree.Dir)}},
			} {
				env := &tools.Env{Root: at.root, Home: t.TempDir()}
				t.Cleanup(Close)
				r, err := call(t, env, "get_changed_files", at.in)
				shown := r.Text()
				if err != nil {
					shown += err.Error()
				}
				tree.Check(t, shown)
				if err == nil && !strings.Contains(shown, tree.Guessed) {
					t.Errorf("got %q, want the new file %s in it", shown, tree.Guessed)
				}
				if r, err = call(t, env, "get_errors", args{}); err != nil {
					t.Errorf("get_errors: %v", err)
				}
				tree.Check(t, r.Text())
			}
		})
	}
}

// Changes where tapgw keeps its tokens are not shown, also if the directory is in a repository.
func TestChangedFilesHaveNoSecrets(t *testing.T) {
	env := space(t, map[string]string{"tap/.admin-token": "old\n", "a.txt": "old\n"})
	for _, step := range []string{"init -q", "add -A -f ."} {
		cmd := exec.Command("git", strings.Fields(step)...)
		cmd.Dir = env.Root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", step, err, out)
		}
	}
	put(t, env, "tap/.admin-token", "adm-needle\n")
	put(t, env, "tap/new", "adm-needle\n")
	put(t, env, "a.txt", "new\n")
	env.Secrets = []string{filepath.Join(env.Root, "tap")}
	r, err := call(t, env, "get_changed_files", args{"diffs": true})
	if text := r.Text(); err != nil || strings.Contains(text, "tap/") ||
		strings.Contains(text, "adm-") || !strings.Contains(text, "+new") {
		t.Errorf("got %q, %v, want a.txt's change and nothing of tap", text, err)
	}
}
