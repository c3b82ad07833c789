package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent"
	"tapgw/internal/agent/console"
	"tapgw/internal/checkpoint"
	"tapgw/internal/cli"
	"tapgw/internal/conversations"
	"tapgw/internal/visible"
)

// The commands that undo and redo the edits of a conversation.

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
			&ucli.IntFlag{Name: "turn", Usage: "undo all turns from `N` on",
				DefaultText: "the last one"},
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
	var out checkpoint.Outcome
	nothing := cli.NotFound("there is no undo to take back; a new edit ends what can be redone")
	if c.Bool("redo") {
		out, err = w.Redo(c.ctx, id)
	} else {
		out, err = w.Undo(c.ctx, id, c.Int("turn"))
		nothing = cli.NotFound(
			"conversation %s has no edit to undo in %s; --conversation ID undoes those of "+
				"another, and lsclient conversations lists them", id, cli.OneLine(c.workspace.Dir))
	}
	switch {
	case errors.Is(err, checkpoint.ErrNothing):
		return nothing
	case err != nil:
		return err
	}
	return c.printUndo(id, out)
}

// editedBy returns the conversation of --conversation, or the latest that has edited files; "" if
// there is no such conversation.
func (c *command) editedBy(w *checkpoint.Workspace) (string, error) {
	ids, err := w.Conversations()
	if err != nil {
		return "", err
	}
	if word := c.String("conversation"); word != "" {
		id, err := conversations.Match(word, ids)
		if _, unknown := errors.AsType[*conversations.UnknownError](err); unknown {
			return "", cli.NotFound("no conversation %q has edited files in %s", word,
				cli.OneLine(c.workspace.Dir))
		}
		return id, agent.KeptError(err)
	}
	return append(ids, "")[0], nil
}

// printUndo prints the result of an undo or redo. Files that it left unchanged are a failure.
func (c *command) printUndo(id string, out checkpoint.Outcome) error {
	type leftFile struct {
		Path   string `json:"path"`
		Reason string `json:"reason"`
	}
	doc := struct {
		Conversation string     `json:"conversation"`
		Turns        []int      `json:"turns"`
		Changed      []string   `json:"changed"`
		Left         []leftFile `json:"left"`
	}{id, append([]int{}, out.Turns...), append([]string{}, out.Changed...), []leftFile{}}
	for _, l := range out.Left {
		doc.Left = append(doc.Left, leftFile{l.Name, l.Reason})
	}
	err := c.out.Result(doc, "%s", strings.Join(append(console.UndoLines(out), ""), "\n"))
	if err == nil {
		c.console.NoteUndo(out)
	}
	return cli.FailedIf(len(out.Left) > 0, err)
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
			item.Files = append(item.Files, editedFile{f.Name, f.Created, f.Deleted, f.Added,
				f.Removed})
			names = append(names,
				visible.Line(f.Name)+" +"+strconv.Itoa(f.Added)+" -"+strconv.Itoa(f.Removed))
		}
		list = append(list, item)
		state := "done"
		if turn.Undone {
			state = "undone"
		}
		t.Row(turn.Turn, console.Clock(turn.At), state, strings.Join(names, ", "))
	}
	return c.out.List(list, t, "no conversation has edited files here")
}
