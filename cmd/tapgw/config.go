package main

import (
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
		Description: `Examples:
  tapgw config check
  tapgw config schema provider`,
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
		}, {
			Name:      "schema",
			Usage:     "print the JSON Schema of a config file, for editors",
			ArgsUsage: "[tapgw|lsclient|provider]",
			Description: `Without an argument: that of tapgw.toml. Editors that speak taplo complete from it
where the file begins with #:schema and its path, as the sample files do.

Examples:
  tapgw config schema provider | jq .properties.kind
  mkdir -p ~/.config/tapgw/schema
  for s in tapgw lsclient provider; do tapgw config schema $s > ~/.config/tapgw/schema/$s.json; done`,
			BashComplete: func(c *ucli.Context) {
				for _, name := range configs.Schemas() {
					cli.Candidate(c, name, "")
				}
			},
			Action: printSchema,
		}},
	}
}

func printSchema(c *ucli.Context) error {
	if err := cli.MaxArgs(c, 1); err != nil {
		return err
	}
	name := "tapgw"
	if c.NArg() > 0 {
		name = c.Args().First()
	}
	if !slices.Contains(configs.Schemas(), name) {
		return cli.Usage("config schema: %q is none of %s", name, strings.Join(configs.Schemas(), ", "))
	}
	return cli.Out(c).Printf("%s", configs.Schema(name))
}

func checkConfig(c *ucli.Context) error {
	files, faults, err := checkFiles(c)
	if err != nil {
		return err
	}
	out := cli.Out(c)
	if out.JSON {
		if err := out.Document(append(configs.Faults{}, faults...)); err != nil {
			return err
		}
	} else {
		for _, file := range files {
			good := true
			for _, f := range faults {
				if f.File != file {
					continue
				}
				good = false
				if err := out.Printf("%s\n", cli.OneLine(f.Error())); err != nil {
					return err
				}
			}
			if !good {
				continue
			}
			if err := out.Printf("%s: %s\n", cli.OneLine(file), out.Paint(cli.Green, "ok")); err != nil {
				return err
			}
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

// checkFiles checks the files that are named, else all that apply, and returns
// which they are.
func checkFiles(c *ucli.Context) (files []string, faults configs.Faults, err error) {
	dir, err := cli.Workdir(c)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range c.Args().Slice() {
		if f == "" {
			return nil, nil, cli.Usage("config check: an empty file name")
		}
		if c.IsSet("workdir") && !filepath.IsAbs(f) {
			f = filepath.Join(dir, f)
		}
		found, err := configs.Check(f)
		if err != nil {
			return nil, nil, err
		}
		files, faults = append(files, f), append(faults, found...)
	}
	if c.NArg() > 0 {
		return files, faults, nil
	}
	all, err := configs.Find(dir, c.String("config"))
	if err != nil {
		return nil, nil, err
	}
	if files, faults, err = all.CheckAll(); err != nil || c.IsSet("workdir") {
		return files, faults, err
	}
	// As people would name them from here.
	local := func(file string) string {
		if rel, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(rel) {
			return rel
		}
		return file
	}
	for i := range files {
		files[i] = local(files[i])
	}
	for i := range faults {
		faults[i].File = local(faults[i].File)
	}
	return files, faults, nil
}
