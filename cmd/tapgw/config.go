package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
)

func configCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "config",
		Usage: "look after config files",
		Subcommands: []*ucli.Command{{
			Name:      "check",
			Usage:     "name every fault in config files",
			ArgsUsage: "[FILE…]",
			Description: `Without a FILE: the config file that applies, and the provider files beside it.
Each fault is a line file:line:column: what. Exit code 1 when there is one.

Examples:
  tapgw config check
  tapgw config check configs/tapgw.toml configs/providers/*.toml --json`,
			Action: checkConfig,
		}},
	}
}

func checkConfig(c *ucli.Context) error {
	files, err := filesToCheck(c)
	if err != nil {
		return err
	}
	out := cli.Out(c)
	faults := []configs.Fault{}
	for _, file := range files {
		found, err := configs.Check(file)
		if err != nil {
			return err
		}
		faults = append(faults, found...)
		if out.JSON {
			continue
		}
		if len(found) == 0 {
			if err := out.Printf("%s: %s\n", file, out.Paint(cli.Green, "ok")); err != nil {
				return err
			}
		}
		for _, f := range found {
			if err := out.Printf("%s\n", f.Error()); err != nil {
				return err
			}
		}
	}
	if out.JSON {
		if err := out.Document(faults); err != nil {
			return err
		}
	}
	if len(files) == 0 {
		out.Notef("no config file found: the defaults apply")
	}
	if len(faults) > 0 {
		return cli.Reported(cli.ExitFailed)
	}
	return nil
}

// filesToCheck are the files that are named, else the one that applies with
// those beside it.
func filesToCheck(c *ucli.Context) ([]string, error) {
	dir, err := cli.Workdir(c)
	if err != nil {
		return nil, err
	}
	if c.NArg() > 0 {
		files := slices.Clone(c.Args().Slice())
		for i, f := range files {
			if f == "" {
				return nil, cli.Usage("config check: an empty file name")
			}
			if c.IsSet("workdir") && !filepath.IsAbs(f) {
				files[i] = filepath.Join(dir, f)
			}
		}
		return files, nil
	}
	file, err := configs.Find(dir, c.String("config"))
	if err != nil || file == "" {
		return nil, err
	}
	if rel, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(rel) && !c.IsSet("workdir") {
		file = rel
	}
	beside, err := filepath.Glob(filepath.Join(escapeGlob(configs.ProvidersBeside(file)), "*.toml"))
	if err != nil && !errors.Is(err, filepath.ErrBadPattern) {
		return nil, err
	}
	return append([]string{file}, beside...), nil
}

// escapeGlob makes a pattern that matches a path and nothing else.
func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}
