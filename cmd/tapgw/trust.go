package main

import (
	"fmt"
	"path/filepath"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
)

func trustCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "trust",
		Usage:     "let a project's own config and tool directories start things",
		ArgsUsage: "[DIR]",
		Description: `A project's files (.tapgw or configs in its directory) start nothing until you
have trusted the directory once; what lies below it is trusted with it. Without a
DIR: lists what you trust. What a flag or a variable names needs no trust.

Examples:
  tapgw trust .
  tapgw trust --json`,
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
			if dir, err = configs.Trust(dir); err != nil {
				return cli.Usage("trust: %v", err)
			}
			if out.JSON {
				return out.Document(map[string]string{"trusted": dir})
			}
			return out.Printf("trusted: %s\n", dir)
		},
	}
}

func untrustCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "untrust",
		Usage:     "take a directory's trust back",
		ArgsUsage: "DIR",
		Description: `A running gateway stops what it runs of the directory's provider files, and forgets
what its tapgw.toml says.

Examples:
  tapgw untrust ~/src/some-project`,
		Action: func(c *ucli.Context) error {
			if err := cli.MaxArgs(c, 1); err != nil {
				return err
			}
			if c.NArg() == 0 {
				return cli.Usage("untrust: name a DIR; tapgw trust lists them")
			}
			dir, err := trustArg(c)
			if err != nil {
				return err
			}
			was, err := configs.Untrust(dir)
			if err != nil {
				return err
			}
			if !was {
				return cli.NotFound("untrust: %s is not among the trusted directories; tapgw trust lists them", dir)
			}
			out := cli.Out(c)
			if out.JSON {
				return out.Document(map[string]string{"untrusted": dir})
			}
			return out.Printf("no longer trusted: %s\n", dir)
		},
	}
}

// trustArg is the directory that is named, seen from -w.
func trustArg(c *ucli.Context) (string, error) {
	dir := c.Args().First()
	if dir == "" {
		return "", cli.Usage("%s: an empty directory name", c.Command.Name)
	}
	if filepath.IsAbs(dir) {
		return dir, nil
	}
	work, err := cli.Workdir(c)
	if err != nil {
		return "", err
	}
	return filepath.Join(work, dir), nil
}

func listTrusted(out *cli.Output) error {
	dirs, err := configs.TrustedDirs()
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Document(append([]string{}, dirs...))
	}
	if len(dirs) == 0 {
		out.Notef("no directory is trusted: tapgw trust DIR")
	}
	for _, d := range dirs {
		if err := out.Printf("%s\n", d); err != nil {
			return fmt.Errorf("listing: %w", err)
		}
	}
	return nil
}
