package consent

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/internal/diff"
	"tapgw/internal/protect"
	"tapgw/internal/visible"
	"tapgw/tools"
	"tapgw/tools/provide"
)

// editConsent records a person's consent to edits beyond a single one.
type editConsent struct {
	all  bool      // all edits of this conversation
	dirs []editDir // places whose files may always be edited
}

// editDir is a directory whose files may be edited, with all directories below it or without them.
type editDir struct {
	path  string // absolute, with symbolic links resolved
	below bool
}

// Edit decides about changes of files below root, and reports whether it asked a person, who then
// has seen the diffs. Without an asker it allows all edits, because the tools themselves refuse
// files outside the workspace and protected files.
func (p *Policy) Edit(ctx context.Context, root string, list []tools.FileEdit,
	diffs []diff.Diff) (asked bool, err error) {
	if p.yes || p.asker == nil {
		return false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.edits.allow(list) {
		return false, nil
	}
	q := Question{Edits: list, Diffs: diffs,
		Choices: []Choice{{Answer: Once}, {Session, "all edits"}}}
	if real, err := protect.Resolve(root); err == nil {
		root = real
	}
	dir, isOffered := commonDir(root, list)
	if isOffered {
		q.Choices = append(q.Choices, Choice{Always, dir.pattern(root)})
	}
	no :=
		&provide.Refusal{What: "a person must allow such an edit, and is busy with something else"}
	reply, err := p.question(ctx, q, no)
	if err != nil {
		return true, err
	}
	switch reply.Word {
	case Session:
		p.edits.all = true
		return true, nil
	case Always:
		p.edits.dirs = append(p.edits.dirs, dir)
		return true, nil
	case Once:
		return true, nil
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name)
	}
	return true, saidNo("the change of "+strings.Join(names, ", "), reply.Reason)
}

// ForgetSession ends the consent to all edits of the conversation, because another one begins.
func (p *Policy) ForgetSession() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.edits.all = false
}

// allow reports whether all of the edits are allowed without a question.
func (c *editConsent) allow(list []tools.FileEdit) bool {
	for _, e := range list {
		if !c.all && !c.allows(e.Path) {
			return false
		}
	}
	return true
}

func (c *editConsent) allows(path string) bool {
	return slices.ContainsFunc(c.dirs, func(d editDir) bool {
		return filepath.Dir(path) == d.path || d.below && isBelow(path, d.path)
	})
}

// commonDir returns the directory that contains all of the edits, to offer the answer "always" for
// it. It is not offered if it lies outside the workspace, or if it is the root and some edits lie
// further below, because the answer would then cover all files.
func commonDir(root string, list []tools.FileEdit) (dir editDir, isOffered bool) {
	if len(list) == 0 {
		return editDir{}, false
	}
	dir = editDir{filepath.Dir(list[0].Path), true}
	for _, e := range list {
		if !isBelow(e.Path, root) {
			return editDir{}, false
		}
		for !isBelow(e.Path, dir.path) {
			dir.path = filepath.Dir(dir.path)
		}
	}
	if dir.path != root {
		return dir, true
	}
	dir.below = false
	for _, e := range list {
		if filepath.Dir(e.Path) != root {
			return editDir{}, false
		}
	}
	return dir, true
}

// isBelow reports whether a clean path lies in dir, at any depth.
func isBelow(path, dir string) bool {
	return strings.HasPrefix(path,
		strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}

// pattern returns the directory's files as a pattern for people.
func (d editDir) pattern(root string) string {
	rel, err := filepath.Rel(root, d.path)
	if err != nil {
		rel = d.path
	}
	if !d.below {
		return visible.Line(filepath.Join(rel, "*"))
	}
	return visible.Line(filepath.Join(rel, "**"))
}
