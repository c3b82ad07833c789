package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent"
	"tapgw/internal/agent/console"
	"tapgw/internal/agent/workspace"
	"tapgw/internal/checkpoint"
	"tapgw/internal/cli"
	"tapgw/internal/conversations"
	"tapgw/internal/proc"
)

func conversationsCommand() *ucli.Command {
	return &ucli.Command{
		Name: "conversations", Usage: "list, show, delete and export kept conversations",
		Description: `They are the conversations of agent and chat, of all workspaces, the last used first. An ID
may be shortened to its beginning.

Examples:
  lsclient conversations
  lsclient conversations show 3f2a
  lsclient agent --resume 3f2a 'go on'`,
		Action: action(0, 0, listKept),
		Subcommands: []*ucli.Command{
			{
				Name: "list", Usage: "list them",
				Description: `Examples:
  lsclient conversations list --json | jq -r '.[] | select(.turns > 10).id'`,
				Action: action(0, 0, listKept),
			},
			{
				Name: "show", Usage: "print one to read", ArgsUsage: "[ID]",
				Description: `Without ID it is the workspace's latest. With --json its turns have the results of tools,
too.

Examples:
  lsclient conversations show 3f2a
  lsclient conversations show --json | jq -r '.turns[].prompt'`,
				BashComplete: completeKept,
				Action:       action(1, 0, showKept),
			},
			{
				Name: "delete", Usage: "delete some from the disk", ArgsUsage: "ID...",
				Description: `It can't be undone.

Examples:
  lsclient conversations delete 3f2a 7kq --yes`,
				Flags: []ucli.Flag{&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"},
					Usage: "confirm"}},
				BashComplete: completeKept,
				Action:       action(maxDeleted, 0, deleteKept),
			},
			{
				Name: "export", Usage: "print one as Markdown, with the results of tools",
				ArgsUsage: "[ID]",
				Description: `Without ID it is the workspace's latest. With --json it is the file as it is kept, a JSON
object a line.

Examples:
  lsclient conversations export 3f2a --output talk.md
  lsclient conversations export --json >talk.jsonl`,
				Flags: []ucli.Flag{&ucli.PathFlag{Name: "output", Aliases: []string{"o"},
					Usage: "write to `FILE`, which only you can read", DefaultText: "stdout"}},
				BashComplete: completeKept,
				Action:       action(1, 0, exportKept),
			},
		},
	}
}

// maxDeleted is how many conversations one command deletes.
const maxDeleted = 1000

func listKept(c *command) error {
	list, err := agent.ListKept(c.out.Notef)
	if err != nil {
		return err
	}
	t := &cli.Table{Columns: []string{"ID", "TITLE", "TURNS", "USED", "WORKSPACE"}}
	for _, i := range list {
		t.Row(i.ShortID(), cli.Shorten(i.Title, 50), i.Turns, console.Clock(i.UpdatedAt),
			i.Workspace)
	}
	return c.out.List(append([]conversations.Info{}, list...), t, "no conversations are kept")
}

// findKept returns the id that the argument means; without one it is the workspace's latest
// conversation.
func (c *command) findKept() (string, error) {
	if c.NArg() > 0 {
		return agent.FindKept(c.Args().First())
	}
	return agent.LatestKept(c.workspace.Dir)
}

// readKept reads the conversation that the argument means.
func (c *command) readKept() (id string, read conversations.Conversation, err error) {
	if id, err = c.findKept(); err != nil {
		return id, read, err
	}
	read, err = agent.Kept().Read(id)
	return id, read, agent.KeptError(err)
}

func showKept(c *command) error {
	_, read, err := c.readKept()
	if err != nil {
		return err
	}
	return c.out.Result(read, "%s", read.Markdown(false))
}

func deleteKept(c *command) error {
	var ids []string
	for _, word := range c.Args().Slice() {
		id, err := agent.FindKept(word)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	switch {
	case len(ids) == 0:
		return cli.Usage("which conversations? lsclient conversations lists them")
	case !c.Bool("yes"):
		return cli.Usage("deleting %s can't be undone; give --yes to confirm",
			strings.Join(ids, ", "))
	}
	for _, id := range ids {
		if err := agent.Kept().Delete(id); err != nil {
			return agent.KeptError(err)
		}
		if err := checkpoint.Forget(c.ctx, workspace.CheckpointsDir(), id); err != nil {
			return fmt.Errorf("deleting what undo needs of %s: %w", id, err)
		}
		c.out.Notef("deleted %s", id)
	}
	if c.out.JSON {
		return c.out.Document(ids)
	}
	return nil
}

func exportKept(c *command) error {
	id, read, err := c.readKept()
	if err != nil {
		return err
	}
	data := []byte(read.Markdown(true))
	if c.out.JSON {
		if data, err = agent.Kept().Lines(id); err != nil {
			return agent.KeptError(err)
		}
	}
	switch file := c.Path("output"); {
	case c.IsSet("output") && file == "":
		return cli.Usage("flag --output: must be a file")
	case file != "":
		return writeExport(file, data)
	case c.out.JSON:
		for line := range bytes.Lines(data) {
			if err := c.out.Line(json.RawMessage(line)); err != nil {
				return err
			}
		}
		return nil
	}
	return c.out.Printf("%s", data)
}

// writeExport replaces a file. To a device or a pipe, such as /dev/stdout, it writes directly,
// because a rename would replace it by a file.
func writeExport(path string, data []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, data, 0)
	}
	return proc.WritePrivate(path, data)
}

// completeKept completes ids of all workspaces.
func completeKept(uc *ucli.Context) { suggestKept(uc, "", false) }

// completeResume completes the value of --resume to ids of the workspace.
func completeResume(uc *ucli.Context) { suggestKept(uc, "resume", true) }

// suggestKept offers ids as the value of a flag, or with "" as an argument.
func suggestKept(uc *ucli.Context, flag string, ofWorkspace bool) {
	if cli.Completing(uc) != flag {
		return
	}
	c, err := newCommand(uc)
	if err != nil {
		return
	}
	defer c.workspace.Close()
	list, _, err := agent.Kept().List()
	if err != nil {
		return
	}
	for _, i := range list {
		if !ofWorkspace || i.Workspace == c.workspace.Dir {
			cli.Candidate(uc, i.ID, cli.Shorten(i.Title, 60))
		}
	}
}
