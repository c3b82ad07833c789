package main

import (
	"cmp"
	"context"
	"os"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func listCommand() *ucli.Command {
	return &ucli.Command{
		Name: "list", Aliases: []string{"ls"}, Usage: "list running sessions, or those on disk",
		Description: `With --persisted it lists the Copilot sessions on disk, the last used first, also those of
other programs and of a gateway that was killed. The state is stored (it can be resumed),
live (it runs in this gateway) or inUse (another process has it). The other flags
are for --persisted, except --all.

Examples:
  tapctl sessions list --json
  tapctl sessions list --persisted --cwd . --last 5`,
		Flags: []ucli.Flag{
			allFlag(),
			&ucli.BoolFlag{Name: "persisted", Usage: "the sessions on disk"},
			&ucli.StringFlag{Name: "cwd", Usage: "only sessions with this working `DIR`"},
			&ucli.StringFlag{Name: "repository",
				Usage: "only sessions of this repository, `OWNER/NAME`"},
			&ucli.StringFlag{Name: "branch", Usage: "only sessions of this `BRANCH`"},
			&ucli.IntFlag{Name: "last", Usage: "at most `N`"},
		},
		Action: shortAction(0, func(c *command) error {
			if c.Bool("persisted") {
				return persistedResource.print(c)
			}
			for _, flag := range []string{"cwd", "repository", "branch", "last"} {
				if c.IsSet(flag) {
					return cli.Usage("flag --%s: goes with --persisted; give that, too", flag)
				}
			}
			return sessionResource.print(c)
		}),
	}
}

var persistedResource = resource[adminapi.Persisted]{
	list:    listPersisted,
	columns: []string{"ID", "LABEL", "MODEL", "STATE", "USED", "REPOSITORY", "BRANCH", "CWD"},
	row: func(s adminapi.Persisted) []any {
		label := cmp.Or(s.Label, cli.Shorten(s.Summary, 40))
		return []any{s.ID, label, s.Model, s.State, ago(s.UsedAt), s.Repository, s.Branch, s.CWD}
	},
	empty:    always("no sessions on disk"),
	argument: "ID",
	find:     (*command).findPersisted,
	suggest: func(c *command) {
		suggest(c, func(ctx context.Context) ([]adminapi.Persisted, error) {
			return c.gw.Persisted(ctx, client.PersistedFilter{})
		}, func(s adminapi.Persisted) (word, about string) { return s.ID, s.Label + " " + s.State })
	},
}

func listPersisted(c *command) ([]adminapi.Persisted, error) {
	f := client.PersistedFilter{Repository: c.String("repository"), Branch: c.String("branch"),
		Last: c.Int("last")}
	if c.IsSet("last") && f.Last < 1 {
		return nil, cli.Usage("flag --last: must be 1 or more")
	}
	if c.IsSet("cwd") {
		var err error
		if f.CWD, err = cli.Absolute(c.Context, c.String("cwd")); err != nil {
			return nil, err
		}
	}
	return c.gw.Persisted(c.ctx, f)
}

// existingDirectory is the directory that --cwd means, which must be there.
func (c *command) existingDirectory() (string, error) {
	dir, err := cli.Absolute(c.Context, c.String("cwd"))
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", cli.Usage("flag --cwd: %s is not a directory", dir)
	}
	return dir, nil
}

func resumeCommand() *ucli.Command {
	return persistedResource.short(&ucli.Command{
		Name: "resume", Usage: "resume a session on disk, with its history",
		Description: `The session keeps its id, its model, its profile and its label. Its tools come back with
their providers. Keys and tokens are not stored: a session on an endpoint of your own
needs --provider-url again.

With --continue, tool calls that were pending are made again once their provider is
there. Otherwise the model is told that they were interrupted.

Examples:
  tapctl sessions resume 3f2a
  tapctl sessions resume 3f2a --continue
  tapctl sessions resume 3f2a --provider-url http://127.0.0.1:11434/v1`,
		Flags: append([]ucli.Flag{
			&ucli.BoolFlag{Name: "continue", Usage: "make the pending tool calls again"},
			&ucli.StringFlag{Name: "cwd", Usage: "another working `DIR`"},
			&ucli.StringFlag{Name: "label", Usage: "another `NAME` for people"},
		}, settingsFlags()...),
	}, resumeSession)
}

func resumeSession(c *command, id string) (err error) {
	r := adminapi.ResumeRequest{ContinuePendingWork: c.Bool("continue"), Label: c.String("label")}
	if r.ModelSettings, err = c.modelSettings(); err != nil {
		return err
	}
	if c.IsSet("cwd") {
		if r.CWD, err = c.existingDirectory(); err != nil {
			return err
		}
	}
	if err := c.gw.Resume(c.ctx, id, r); err != nil {
		return err
	}
	return c.doneTo(id, "resumed")
}

func deleteCommand() *ucli.Command {
	return persistedResource.short(&ucli.Command{
		Name: "delete", Usage: "delete a session from the disk",
		Description: "It can't be undone. Stop a running session first.\n\n" +
			"Examples:\n  tapctl sessions delete 3f2a --yes",
		Flags: []ucli.Flag{&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "confirm"}},
	}, func(c *command, id string) error {
		if !c.Bool("yes") {
			return cli.Usage("deleting session %s can't be undone; give --yes to confirm", id)
		}
		if err := c.gw.Delete(c.ctx, id); err != nil {
			return err
		}
		return c.doneTo(id, "deleted")
	})
}

// findPersisted finds the session on disk that a word means, see [client.Match].
func (c *command) findPersisted(word string) (string, error) {
	if word == "" {
		return "",
			cli.Usage("which session? give its ID or label, see: tapctl sessions list --persisted")
	}
	ctx, cancel := context.WithTimeout(c.ctx, shortTimeout)
	defer cancel()
	sessions, err := c.gw.Persisted(ctx, client.PersistedFilter{})
	if err != nil {
		return "", err
	}
	all := make([]client.Named, len(sessions))
	for i, s := range sessions {
		all[i] = client.Named{ID: s.ID, Label: s.Label}
	}
	found, exact := client.Match(word, all)
	switch {
	case exact || len(found) == 1:
		return found[0].ID, nil
	case len(found) == 0:
		return "",
			cli.NotFound("no session on disk has the ID or label %q, nor an ID that begins so; "+
				"see: tapctl sessions list --persisted", word)
	}
	return "", cli.Usage("session %q is ambiguous; give the ID of one of: %s", word,
		client.Candidates(found))
}
