package filelist

import (
	"slices"
	"strings"
	"testing"

	"tapgw/internal/taptest/hostilegit"
)

// TestFindInHostileTrees: a .git that came with the directory leads to no file outside of it, and
// starts nothing.
func TestFindInHostileTrees(t *testing.T) {
	for _, tree := range hostilegit.Trees(t) {
		t.Run(tree.Name, func(t *testing.T) {
			found := find(t, tree.Dir, "", 50)
			tree.Check(t, strings.Join(found.Files, "\n"))
			if !slices.Contains(found.Files, tree.Guessed) {
				t.Errorf("found %q, want the new file %s in it", found.Files, tree.Guessed)
			}
		})
	}
}
