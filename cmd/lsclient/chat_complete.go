package main

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"tapgw/internal/agent/workspace"
	"tapgw/internal/terminal"
	"tapgw/internal/visible"
)

// maxCandidates is how many files are offered for a word.
const maxCandidates = 50

// candidates returns the ways to complete a word of a prompt: a command, or @ and the path of a file.
func (c *chat) candidates(word string) (found []terminal.Candidate) {
	if part, ok := strings.CutPrefix(word, "@"); ok {
		return c.fileCandidates(strings.TrimPrefix(part, `"`))
	}
	for _, command := range slashCommands() {
		if strings.HasPrefix(command.name, word) {
			found = append(found, terminal.Candidate{Text: command.name, Help: command.help})
		}
	}
	own, _ := c.cmd.ownCommands()
	for _, o := range own {
		if strings.HasPrefix(o.name, word) {
			found = append(found, terminal.Candidate{Text: o.name, Help: visible.Line(o.description)})
		}
	}
	return found
}

// fileCandidates returns the workspace's files whose path has part in it: first those whose name begins with it.
func (c *chat) fileCandidates(part string) (found []terminal.Candidate) {
	files, err := c.cmd.workspace.Env().WorkspaceFiles(context.Background())
	if err != nil {
		return nil
	}
	part = strings.ToLower(part)
	rank := func(file string) int {
		lower := strings.ToLower(file)
		switch {
		case strings.HasPrefix(lower, part):
			return 0
		case strings.HasPrefix(path.Base(lower), part):
			return 1
		case strings.Contains(lower, part):
			return 2
		}
		return -1
	}
	files = slices.DeleteFunc(files, func(f string) bool {
		return rank(f) < 0 || visible.Line(f) != f || strings.Contains(f, `"`)
	})
	slices.SortStableFunc(files, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
	})
	for _, f := range files[:min(len(files), maxCandidates)] {
		text := "@" + f
		if strings.ContainsAny(f, " \t") {
			text = `@"` + f + `"`
		}
		found = append(found, terminal.Candidate{Text: text})
	}
	return found
}

// toggleReasoning is /reasoning.
func (c *chat) toggleReasoning(context.Context, string) error {
	c.cmd.reasoning = !c.cmd.reasoning
	if c.cmd.showsReasoning() {
		c.cmd.out.Notef("the model's reasoning is shown")
	} else {
		c.cmd.out.Notef("the model's reasoning is hidden")
	}
	return nil
}

// compact is /compact.
func (c *chat) compact(ctx context.Context, _ string) error {
	c.cmd.working("compacting the conversation")
	defer c.cmd.working("")
	return c.interruptible(ctx, func(ctx context.Context) error {
		after, turns, err := c.v.Compact(ctx)
		if err != nil {
			return workspace.ExitError(err)
		}
		c.cmd.out.Notef("%s became a summary; the context has %s tokens now", visible.Count(turns, "turn"),
			tokens(after.Used))
		return nil
	})
}

// clear is /clear.
func (c *chat) clear(ctx context.Context, arguments string) error {
	if c.cmd.screen != nil {
		c.cmd.screen.Clear()
	}
	return c.beginAnew(ctx, arguments)
}
