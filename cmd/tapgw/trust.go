package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/visible"
)

// The commands with which a user trusts the files of a project, and looks at the trust.

func trustCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "trust",
		Usage:     "let the gateway use a project's own config, providers and tools",
		ArgsUsage: "[DIR]",
		Description: `The gateway ignores a project's files (.tapgw or configs in its directory) until you
trust them. Trust holds for the files as they are now: the gateway ignores a changed
file until you trust the directory again. This command lists the files that will
count, and shows what has changed since you trusted them last. The files count for
sessions in the directory and below it, of any gateway of yours. Without a DIR, it
lists the directories that you trust. A file that a flag or a variable names needs no
trust.

Examples:
  tapgw trust --dry-run .
  tapgw trust .
  tapgw trust --json`,
		Flags: []ucli.Flag{
			&ucli.BoolFlag{
				Name: "dry-run", Aliases: []string{"n"},
				Usage: "say what would count and what has changed, and trust nothing",
			},
		},
		Action: func(c *ucli.Context) error {
			if err := cli.MaxArgs(c, 1); err != nil {
				return err
			}
			out := cli.Out(c)
			if c.NArg() == 0 {
				return listTrusted(out)
			}
			dir, err := trustArg(c)
			if err != nil {
				return err
			}
			trust := configs.Trust
			if c.Bool("dry-run") {
				trust = configs.TrustChanges
			}
			dir, changes, err := trust(dir)
			if err != nil {
				return cli.Usage("trust: %v", err)
			}
			return showTrust(out, dir, changes, c.Bool("dry-run"))
		},
	}
}

// trustChange is a file that differs from its trusted content, as --json shows it.
type trustChange struct {
	File   string `json:"file"`
	Change string `json:"change"`
	Diff   string `json:"diff,omitempty"`
}

// showTrust prints which files of a project count, and how they differ from their trusted
// content.
func showTrust(out *cli.Output, dir string, changes []configs.Change, isDryRun bool) error {
	counts, err := configs.WhatCounts(dir)
	if err != nil {
		return err
	}
	list := []trustChange{}
	for _, c := range changes {
		list = append(list, trustChange{c.Path, c.What, diffOf(c)})
	}
	if out.JSON {
		doc := map[string]any{"counts": append([]configs.Count{}, counts...), "changes": list}
		if isDryRun {
			doc["directory"] = dir
		} else {
			doc["trusted"] = dir
		}
		return out.Document(doc)
	}
	word := "trusted: "
	if isDryRun {
		word = "not trusted by this: "
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s%s\n", word, visible.Line(dir))
	if len(counts) == 0 {
		text.WriteString(
			"  no config, tools or providers; instructions (AGENTS.md) and chat commands count\n")
		list = nil
	}
	for _, c := range counts {
		fmt.Fprintf(&text, "  %s: %s\n", visible.Line(c.File), visible.Line(c.What))
	}
	isFirst := !slices.ContainsFunc(list, func(c trustChange) bool { return c.Change != "new" })
	if isFirst && len(list) == len(counts) {
		list = nil // the files themselves show it
	}
	for _, c := range list {
		fmt.Fprintf(&text, "\n%s: %s\n%s", c.Change, visible.Line(c.File), visible.Text(c.Diff))
	}
	return out.Printf("%s", text.String())
}

// maxDiffed is the size in bytes up to which a file's differences are shown.
const maxDiffed = 64 << 10

// diffOf returns the change of a file as a patch. Of a new file, it is the whole text.
func diffOf(c configs.Change) string {
	switch {
	case c.What == "gone":
		return ""
	case c.New == nil || c.What == "changed" && c.Old == nil || len(c.Old) > maxDiffed ||
		len(c.New) > maxDiffed:
		return "  too large to show\n"
	case bytes.IndexByte(c.New, 0) >= 0 || bytes.IndexByte(c.Old, 0) >= 0:
		return "  not text\n"
	}
	if d := diff.Diff("trusted", c.Old, "now", c.New); len(d) > 0 {
		_, patch, _ := bytes.Cut(d, []byte("\n")) // without the line of the diff command
		return string(patch)
	}
	return "  permission to run it\n"
}

func untrustCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "untrust",
		Usage:     "end the trust in a directory",
		ArgsUsage: "DIR",
		Description: `A running gateway stops the providers of the directory's files and ignores its
tapgw.toml from then on.

Examples:
  tapgw untrust ~/src/some-project`,
		Action: func(c *ucli.Context) error {
			if err := cli.MaxArgs(c, 1); err != nil {
				return err
			}
			if c.NArg() == 0 {
				return cli.Usage("untrust: a DIR is missing; tapgw trust lists the trusted ones")
			}
			dir, err := trustArg(c)
			if err != nil {
				return err
			}
			wasTrusted, err := configs.Untrust(dir)
			if err != nil {
				return err
			}
			if !wasTrusted {
				return cli.NotFound(
					"untrust: %s is not among the trusted directories; tapgw trust lists these",
					dir)
			}
			out := cli.Out(c)
			return out.Result(map[string]string{"untrusted": dir}, "no longer trusted: %s\n", dir)
		},
	}
}

// trustArg returns the directory that the argument names, relative to -w.
func trustArg(c *ucli.Context) (string, error) {
	dir := c.Args().First()
	if dir == "" {
		return "", cli.Usage("%s: the directory name is empty", c.Command.Name)
	}
	return cli.Absolute(c, dir)
}

func listTrusted(out *cli.Output) error {
	projects, err := configs.TrustedProjects()
	if err != nil {
		return err
	}
	dirs, text := []string{}, ""
	for _, p := range projects {
		dirs = append(dirs, p.Dir)
		state := ""
		switch changes, err := p.Changes(); {
		case err != nil:
			state = ": " + err.Error()
		case len(changes) > 0:
			state = fmt.Sprintf(": %s has changed since you trusted it: run %s",
				changes[0].Path, configs.TrustCommand(p.Dir))
		}
		text += visible.Line(p.Dir+state) + "\n"
	}
	if len(projects) == 0 {
		return out.Done(dirs, "no directory is trusted; trust one: tapgw trust DIR")
	}
	return out.Result(dirs, "%s", text)
}
