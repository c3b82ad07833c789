package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	ucli "github.com/urfave/cli/v2"

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
		Action: short(0, func(k *call) error {
			if !k.Bool("persisted") {
				for _, flag := range []string{"cwd", "repository", "branch", "last"} {
					if k.IsSet(flag) {
						return cli.Usage("flag --%s: is for --persisted; give that too", flag)
					}
				}
				return listSessions(k)
			}
			return listPersisted(k)
		}),
	}
}

func listPersisted(k *call) error {
	f := client.PersistedFilter{Repository: k.String("repository"), Branch: k.String("branch"), Last: k.Int("last")}
	if k.IsSet("last") && f.Last < 1 {
		return cli.Usage("flag --last: must be 1 or more")
	}
	if k.IsSet("cwd") {
		dir, err := k.directory()
		if err != nil {
			return err
		}
		f.CWD = dir
	}
	sessions, err := k.gw.Persisted(k.ctx, f)
	if err != nil {
		return err
	}
	if k.out.JSON {
		return k.out.Document(list(sessions))
	}
	t := &cli.Table{Columns: []string{"ID", "LABEL", "MODEL", "STATE", "USED", "REPOSITORY", "BRANCH", "CWD"}}
	for _, s := range sessions {
		t.Row(s.ID, cmp.Or(s.Label, cli.Shorten(s.Summary, 40)), s.Model, s.State, ago(s.UsedAt), s.Repository, s.Branch, s.CWD)
	}
	return k.out.Table(t, "no sessions on disk")
}

// directory is the directory that --cwd means, seen from where the command runs.
func (k *call) directory() (string, error) {
	dir, err := cli.Workdir(k.Context)
	if err != nil {
		return "", err
	}
	if cwd := k.String("cwd"); filepath.IsAbs(cwd) {
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
		Action: short(1, func(k *call) error {
			id, err := k.persisted(k.Args().First())
			if err != nil {
				return err
			}
			r := client.ResumeRequest{ContinuePendingWork: k.Bool("continue")}
			if r.StartRequest, err = k.settings(); err != nil {
				return err
			}
			r.Label = k.String("label")
			if k.IsSet("cwd") {
				if r.CWD, err = k.directory(); err != nil {
					return err
				}
				if info, err := os.Stat(r.CWD); err != nil || !info.IsDir() {
					return cli.Usage("flag --cwd: %s is not a directory", r.CWD)
				}
			}
			if err := k.gw.Resume(k.ctx, id, r); err != nil {
				return err
			}
			return k.done(id, "resumed")
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
		Action: short(1, func(k *call) error {
			id, err := k.persisted(k.Args().First())
			if err != nil {
				return err
			}
			if !k.Bool("yes") {
				return cli.Usage("session %s would be gone for good: give --yes if you mean it", id)
			}
			if err := k.gw.Delete(k.ctx, id); err != nil {
				return err
			}
			return k.done(id, "deleted")
		}),
	}
}

// persisted finds the session on disk that a word means, see [client.Match].
func (k *call) persisted(word string) (string, error) {
	if word == "" {
		return "", cli.Usage("which session? give its ID or label, see: tapctl sessions list --persisted")
	}
	ctx, cancel := context.WithTimeout(k.ctx, shortTimeout)
	defer cancel()
	sessions, err := k.gw.Persisted(ctx, client.PersistedFilter{})
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
	return completing(func(k *call, flag string) {
		if flag != "" || k.NArg() > 0 {
			return
		}
		sessions, err := k.gw.Persisted(k.ctx, client.PersistedFilter{})
		if err != nil {
			return
		}
		for _, s := range sessions {
			cli.Candidate(k.Context, s.ID, s.Label+" "+s.State)
		}
	})
}
