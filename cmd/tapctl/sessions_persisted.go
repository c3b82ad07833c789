package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

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
			&ucli.StringFlag{Name: "repository", Usage: "only sessions of this repository, `OWNER/NAME`"},
			&ucli.StringFlag{Name: "branch", Usage: "only sessions of this `BRANCH`"},
			&ucli.IntFlag{Name: "last", Usage: "at most `N`"},
		},
		Action: shortAction(0, func(c *command) error {
			if !c.Bool("persisted") {
				for _, flag := range []string{"cwd", "repository", "branch", "last"} {
					if c.IsSet(flag) {
						return cli.Usage("flag --%s: goes with --persisted; give that, too", flag)
					}
				}
				return listSessions(c)
			}
			return listPersisted(c)
		}),
	}
}

func listPersisted(c *command) error {
	f := client.PersistedFilter{Repository: c.String("repository"), Branch: c.String("branch"), Last: c.Int("last")}
	if c.IsSet("last") && f.Last < 1 {
		return cli.Usage("flag --last: must be 1 or more")
	}
	if c.IsSet("cwd") {
		dir, err := c.directory()
		if err != nil {
			return err
		}
		f.CWD = dir
	}
	sessions, err := c.gw.Persisted(c.ctx, f)
	if err != nil {
		return err
	}
	if c.out.JSON {
		return c.out.Document(list(sessions))
	}
	t := &cli.Table{Columns: []string{"ID", "LABEL", "MODEL", "STATE", "USED", "REPOSITORY", "BRANCH", "CWD"}}
	for _, s := range sessions {
		label := cmp.Or(s.Label, cli.Shorten(s.Summary, 40))
		t.Row(s.ID, label, s.Model, s.State, ago(s.UsedAt), s.Repository, s.Branch, s.CWD)
	}
	return c.out.Table(t, "no sessions on disk")
}

// directory is the absolute path that --cwd means, from the directory that the command runs in.
func (c *command) directory() (string, error) {
	dir, err := cli.Workdir(c.Context)
	if err != nil {
		return "", err
	}
	if cwd := c.String("cwd"); filepath.IsAbs(cwd) {
		dir = cwd
	} else {
		dir = filepath.Join(dir, cwd)
	}
	return dir, nil
}

func resumeCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "resume",
		Usage:     "resume a session on disk, with its history",
		ArgsUsage: "ID",
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
		BashComplete: completePersisted(),
		Action: shortAction(1, func(c *command) error {
			id, err := c.findPersisted(c.Args().First())
			if err != nil {
				return err
			}
			r := adminapi.ResumeRequest{ContinuePendingWork: c.Bool("continue")}
			if r.ModelSettings, err = c.modelSettings(); err != nil {
				return err
			}
			r.Label = c.String("label")
			if c.IsSet("cwd") {
				if r.CWD, err = c.directory(); err != nil {
					return err
				}
				if info, err := os.Stat(r.CWD); err != nil || !info.IsDir() {
					return cli.Usage("flag --cwd: %s is not a directory", r.CWD)
				}
			}
			if err := c.gw.Resume(c.ctx, id, r); err != nil {
				return err
			}
			return c.printDone(id, "resumed")
		}),
	}
}

func deleteCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "delete",
		Usage:     "delete a session from the disk",
		ArgsUsage: "ID",
		Description: "It can't be undone. Stop a running session first.\n\n" +
			"Examples:\n  tapctl sessions delete 3f2a --yes",
		Flags:        []ucli.Flag{&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "confirm"}},
		BashComplete: completePersisted(),
		Action: shortAction(1, func(c *command) error {
			id, err := c.findPersisted(c.Args().First())
			if err != nil {
				return err
			}
			if !c.Bool("yes") {
				return cli.Usage("deleting session %s can't be undone; give --yes to confirm", id)
			}
			if err := c.gw.Delete(c.ctx, id); err != nil {
				return err
			}
			return c.printDone(id, "deleted")
		}),
	}
}

// findPersisted finds the session on disk that a word means, see [client.Match].
func (c *command) findPersisted(word string) (string, error) {
	if word == "" {
		return "", cli.Usage("which session? give its ID or label, see: tapctl sessions list --persisted")
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
		return "", cli.NotFound("no session on disk has the ID or label %q, nor an ID that begins so; "+
			"see: tapctl sessions list --persisted", word)
	}
	return "", cli.Usage("session %q is ambiguous; give the ID of one of: %s", word, client.Candidates(found))
}

// completePersisted completes the first argument to a session on disk.
func completePersisted() ucli.BashCompleteFunc {
	return completing(func(c *command, flag string) {
		if flag != "" || c.NArg() > 0 {
			return
		}
		sessions, err := c.gw.Persisted(c.ctx, client.PersistedFilter{})
		if err != nil {
			return
		}
		for _, s := range sessions {
			cli.Candidate(c.Context, s.ID, s.Label+" "+s.State)
		}
	})
}
