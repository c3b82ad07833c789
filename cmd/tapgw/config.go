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
		Usage: "check config files, and print their schemas",
		Description: `Examples:
  tapgw config check
  tapgw config schema provider`,
		Subcommands: []*ucli.Command{{
			Name:      "check",
			Usage:     "name every fault in config files",
			ArgsUsage: "[FILE…]",
			Description: `Without a FILE, it checks the config file that applies and the provider files beside
it. Each fault is a line file:line:column: what. Exit code 1 when there is a fault.

Examples:
  tapgw config check
  tapgw config check configs/tapgw.toml configs/providers/*.toml --json`,
			Action: checkConfig,
		}, {
			Name:      "schema",
			Usage:     "print the JSON Schema of a config file, for editors",
			ArgsUsage: "[tapgw|lsclient|provider]",
			Description: `Without an argument, it prints the schema of tapgw.toml. Editors that use taplo
complete and check a file whose first line is #:schema and the schema's path, as in
the sample files.

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
		return cli.Usage("config schema: there is no schema %q, only %s", name,
			strings.Join(configs.Schemas(), ", "))
	}
	return cli.Out(c).Printf("%s", configs.Schema(name))
}

func checkConfig(c *ucli.Context) error {
	files, faults, err := checkFiles(c)
	if err != nil {
		return err
	}
	out := cli.Out(c)
	var text strings.Builder
	for _, file := range files {
		isGood := true
		for _, f := range faults {
			if f.File == file {
				isGood = false
				text.WriteString(cli.OneLine(f.Error()) + "\n")
			}
		}
		if isGood {
			text.WriteString(cli.OneLine(file) + ": " + out.Paint(cli.Green, "ok") + "\n")
		}
	}
	err = out.Result(append(configs.Faults{}, faults...), "%s", text.String())
	if err == nil && len(files) == 0 {
		out.Notef("no config file found: the defaults apply")
	}
	return cli.FailedIf(len(faults) > 0, err)
}

// checkFiles checks the files in the arguments, or all that apply, and also returns their names.
func checkFiles(c *ucli.Context) (files []string, faults configs.Faults, err error) {
	dir, err := cli.Workdir(c)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range c.Args().Slice() {
		if f == "" {
			return nil, nil, cli.Usage("config check: a file name is empty")
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
	relative := func(file string) string {
		if rel, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(rel) {
			return rel
		}
		return file
	}
	for i := range files {
		files[i] = relative(files[i])
	}
	for i := range faults {
		faults[i].File = relative(faults[i].File)
	}
	return files, faults, nil
}
