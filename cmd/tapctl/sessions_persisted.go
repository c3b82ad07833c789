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
		Name: "list", Aliases: []string{"ls"}, Usage: "list sessions, those that run or those on disk",
		Description: `With --persisted: the Copilot sessions on disk, the last used first, whoever started
them. Those of a gateway that was killed are among them. State is stored (it can be
resumed), live (it runs in this gateway) or inUse (another process has it). The other
flags are for --persisted.

Examples:
  tapctl sessions list --json
  tapctl sessions list --persisted --cwd . --last 5`,
		Flags: []ucli.Flag{
			&ucli.BoolFlag{Name: "persisted", Usage: "those on disk"},
			&ucli.StringFlag{Name: "cwd", Usage: "only those of a working `DIR`"},
			&ucli.StringFlag{Name: "repository", Usage: "only those of a repository, `OWNER/NAME`"},
			&ucli.StringFlag{Name: "branch", Usage: "only those of a `BRANCH`"},
			&ucli.IntFlag{Name: "last", Usage: "at most `N`"},
		},
		Action: shortAction(0, func(c *command) error {
			if !c.Bool("persisted") {
				for _, flag := range []string{"cwd", "repository", "branch", "last"} {
					if c.IsSet(flag) {
						return cli.Usage("flag --%s: is for --persisted; give that too", flag)
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
		t.Row(s.ID, cmp.Or(s.Label, cli.Shorten(s.Summary, 40)), s.Model, s.State, ago(s.UsedAt), s.Repository, s.Branch, s.CWD)
	}
	return c.out.Table(t, "no sessions on disk")
}

// directory is the directory that --cwd means, seen from where the command runs.
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
		Usage:     "bring a session on disk back, with its history",
		ArgsUsage: "ID",
		Description: `The session keeps its id, and goes on with the model, the profile and the label that
it had. Its tools come back with their providers. Keys and tokens are kept nowhere: a
session that was started on an endpoint of your own needs --provider-url again.

With --continue what was pending goes on, too: a tool call is made again, once its
provider is there. Else the model is told that it was interrupted.

Examples:
  tapctl sessions resume 3f2a
  tapctl sessions resume 3f2a --continue
  tapctl sessions resume 3f2a --provider-url http://127.0.0.1:11434/v1`,
		Flags: append([]ucli.Flag{
			&ucli.BoolFlag{Name: "continue", Usage: "go on with what was pending"},
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
		Name:         "delete",
		Usage:        "remove a session from the disk, for good",
		ArgsUsage:    "ID",
		Description:  "A session that runs is refused: stop it first.\n\nExamples:\n  tapctl sessions delete 3f2a --yes",
		Flags:        []ucli.Flag{&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "really"}},
		BashComplete: completePersisted(),
		Action: shortAction(1, func(c *command) error {
			id, err := c.findPersisted(c.Args().First())
			if err != nil {
				return err
			}
			if !c.Bool("yes") {
				return cli.Usage("session %s would be gone for good: give --yes if you mean it", id)
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
		return "", cli.NotFound("no session on disk has the ID or label %q, nor an ID that begins so; see: tapctl sessions list --persisted", word)
	}
	return "", cli.Usage("session %q is ambiguous; give the ID of one of: %s", word, client.Candidates(found))
}

// completePersisted offers the ids of sessions on disk.
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
