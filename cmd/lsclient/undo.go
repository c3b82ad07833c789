package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/checkpoint"
	"tapgw/internal/cli"
	"tapgw/internal/conversations"
	"tapgw/internal/diff"
	"tapgw/internal/visible"
)

func undoCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "undo",
		Usage: "undo the edits of a conversation's last turn",
		Description: `Files of the workspace get back what they held before the last turn of its latest
conversation with edits, byte for byte; git is not used. A file that was changed since
is left as it is and named, and the exit code is 1. A second undo undoes the turn before.
What commands, drop-in tools and MCP servers did to files is not undone.

Examples:
  lsclient undo
  lsclient undo --list
  lsclient undo --turn 3      # the turns from 3 on
  lsclient undo --redo`,
		Flags: []ucli.Flag{
			&ucli.IntFlag{Name: "turn", Usage: "undo all turns from `N` on", DefaultText: "the last one"},
			&ucli.BoolFlag{Name: "redo", Usage: "take the last undo back"},
			&ucli.BoolFlag{Name: "list", Usage: "list the turns with edits, and undo nothing"},
			&ucli.StringFlag{Name: "conversation", Usage: "of the conversation `ID`",
				DefaultText: "the latest with edits in the workspace"},
		},
		Action: action(0, 0, runUndo),
	}
}

func runUndo(c *command) error {
	switch {
	case c.Bool("list") && (c.Bool("redo") || c.IsSet("turn")), c.Bool("redo") && c.IsSet("turn"):
		return cli.Usage("flags --turn, --redo and --list: give one of them")
	case c.IsSet("turn") && c.Int("turn") < 1:
		return cli.Usage("flag --turn: must be 1 or more; lsclient undo --list lists the turns")
	}
	w := c.workspace.Checkpoints()
	id, err := c.editedBy(w)
	if err != nil {
		return err
	}
	if c.Bool("list") {
		return c.listEdits(w, id)
	}
	if id == "" {
		return cli.NotFound("no conversation has edited files in %s", cli.OneLine(c.workspace.Dir))
	}
	do := func(ctx context.Context) (checkpoint.Outcome, error) { return w.Undo(ctx, id, c.Int("turn")) }
	if c.Bool("redo") {
		do = func(ctx context.Context) (checkpoint.Outcome, error) { return w.Redo(ctx, id) }
	}
	out, err := do(c.ctx)
	if errors.Is(err, checkpoint.ErrNothing) {
		return cli.NotFound("%s", c.nothing(id, c.Bool("redo")))
	}
	if err != nil {
		return err
	}
	return c.printUndo(id, out)
}

// editedBy returns the conversation of --conversation, or the latest that has edited files; "" if there is none.
func (c *command) editedBy(w *checkpoint.Workspace) (string, error) {
	ids, err := w.Conversations()
	if err != nil {
		return "", err
	}
	if word := c.String("conversation"); word != "" {
		id, err := conversations.Match(word, ids)
		if _, unknown := errors.AsType[*conversations.UnknownError](err); unknown {
			return "", cli.NotFound("no conversation %q has edited files in %s", word, cli.OneLine(c.workspace.Dir))
		}
		return id, keptError(err)
	}
	return append(ids, "")[0], nil
}

// nothing says that a conversation has nothing to undo or redo.
func (c *command) nothing(id string, redo bool) string {
	if redo {
		return "there is no undo to take back; a new edit ends what can be redone"
	}
	return fmt.Sprintf("conversation %s has no edit to undo in %s; --conversation ID undoes those of another, "+
		"and lsclient conversations lists them", id, cli.OneLine(c.workspace.Dir))
}

// undoneFile is a file that an undo left, as --json prints it.
type undoneFile struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// printUndo prints what an undo or redo did. Files that were left are a failure.
func (c *command) printUndo(id string, out checkpoint.Outcome) error {
	doc := struct {
		Conversation string       `json:"conversation"`
		Turns        []int        `json:"turns"`
		Changed      []string     `json:"changed"`
		Left         []undoneFile `json:"left"`
	}{id, append([]int{}, out.Turns...), append([]string{}, out.Changed...), []undoneFile{}}
	for _, l := range out.Left {
		doc.Left = append(doc.Left, undoneFile{l.Name, l.Reason})
	}
	if c.out.JSON {
		if err := c.out.Document(doc); err != nil {
			return err
		}
	} else {
		for _, line := range undoLines(out) {
			if err := c.out.Printf("%s\n", line); err != nil {
				return err
			}
		}
	}
	c.noteUndo(out)
	if len(out.Left) > 0 {
		return cli.Reported(cli.ExitFailed)
	}
	return nil
}

// undoLines names what an undo or redo changed. Directories count only if there are no files in them.
func undoLines(out checkpoint.Outcome) (lines []string) {
	for _, name := range out.Changed {
		lines = append(lines, "changed "+visible.Line(name))
	}
	for _, name := range out.Dirs {
		if len(out.Changed) == 0 {
			lines = append(lines, "changed "+visible.Line(name)+"/")
		}
	}
	return lines
}

// noteUndo says on stderr which turns an undo or redo was about, and which files it left.
func (c *command) noteUndo(out checkpoint.Outcome) {
	for _, l := range out.Left {
		c.out.Notef("left %s: %s", visible.Line(l.Name), l.Reason)
	}
	if len(out.Changed)+len(out.Dirs)+len(out.Left) == 0 {
		c.out.Notef("the files hold that already")
	}
}

// listEdits lists the turns of a conversation that edited files.
func (c *command) listEdits(w *checkpoint.Workspace, id string) error {
	turns, err := w.Turns(id)
	if err != nil {
		return err
	}
	type editedFile struct {
		Path    string `json:"path"`
		Created bool   `json:"created,omitempty"`
		Deleted bool   `json:"deleted,omitempty"`
		Added   int    `json:"added"`
		Removed int    `json:"removed"`
	}
	type editedTurn struct {
		Conversation string       `json:"conversation"`
		Turn         int          `json:"turn"`
		EditedAt     time.Time    `json:"editedAt"`
		Undone       bool         `json:"undone"`
		Files        []editedFile `json:"files"`
	}
	list := []editedTurn{}
	t := &cli.Table{Columns: []string{"TURN", "EDITED", "STATE", "FILES"}}
	for _, turn := range turns {
		item := editedTurn{id, turn.Turn, turn.At, turn.Undone, nil}
		var names []string
		for _, f := range turn.Files {
			item.Files = append(item.Files, editedFile{f.Name, f.Created, f.Deleted, f.Added, f.Removed})
			names = append(names, visible.Line(f.Name)+" +"+strconv.Itoa(f.Added)+" -"+strconv.Itoa(f.Removed))
		}
		list = append(list, item)
		state := "done"
		if turn.Undone {
			state = "undone"
		}
		t.Row(turn.Turn, clock(turn.At), state, strings.Join(names, ", "))
	}
	if c.out.JSON {
		return c.out.Document(list)
	}
	return c.out.Table(t, "no conversation has edited files here")
}

// turnArgument reads the number of a turn behind a command of a chat; 0 means the last one.
func turnArgument(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, cli.Usage("%q is no turn: give its number, from 1", text)
	}
	return n, nil
}

// undo is /undo.
func (c *chat) undo(ctx context.Context, argument string) error {
	from, err := turnArgument(argument)
	if err != nil {
		return err
	}
	out, err := c.v.checkpoints.Undo(ctx, c.v.kept.id, from)
	return c.undone(out, err, "undone")
}

// redo is /redo.
func (c *chat) redo(ctx context.Context, _ string) error {
	out, err := c.v.checkpoints.Redo(ctx, c.v.kept.id)
	return c.undone(out, err, "redone")
}

// undone prints what an undo or redo did, and notes it for the model.
func (c *chat) undone(out checkpoint.Outcome, err error, verb string) error {
	if errors.Is(err, checkpoint.ErrNothing) {
		c.cmd.out.Notef("no edit of this conversation can be %s", verb)
		return nil
	}
	if err != nil {
		return err
	}
	for _, line := range undoLines(out) {
		c.cmd.out.Notef("%s", line)
	}
	c.cmd.noteUndo(out)
	if len(out.Changed) > 0 {
		c.v.edits.tell(undoNote(verb, out.Changed))
	}
	return nil
}

// diff is /diff: what the files of the last turn with edits, or of the turns from a number on, held before, and hold
// now.
func (c *chat) diff(_ context.Context, argument string) error {
	from, err := turnArgument(argument)
	if err != nil {
		return err
	}
	list, err := c.v.checkpoints.Since(c.v.kept.id, from)
	if errors.Is(err, checkpoint.ErrNothing) {
		c.cmd.out.Notef("this conversation has edited no file")
		return nil
	}
	if err != nil {
		return err
	}
	view := c.cmd.diffView(c.cmd.App.ErrWriter)
	view.all = true
	for _, v := range list {
		d := diff.New(v.Name, v.Was, v.Now)
		if v.Reason != "" {
			d = diff.Diff{Name: v.Name, Note: v.Reason}
		}
		view.print(c.cmd.out.Err, &d)
	}
	return nil
}
