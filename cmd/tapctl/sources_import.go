package main

import (
	"errors"
	"path/filepath"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/tapconfig"
	"tapgw/internal/visible"
)

func sourcesImportCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "import",
		Usage:     "turn the emitters of a project's tap.config.json into provider files",
		ArgsUsage: "[DIR]",
		Description: `DIR is the project: the working directory if it is missing. Its tap.config.json is read, or
else its .github/tap.config.json. Each emitter becomes a provider file of kind source beside
the config in use, for sessions in DIR. A gateway that runs starts it at once: look at the
commands with --dry-run first. A file that exists stays as it is.

Examples:
  tapctl sources import --dry-run
  tapctl sources import ~/src/shop
  tapctl sources import ~/src/shop --json | jq -r '.[] | select(.state=="skipped") | .reason'`,
		Flags:  importFlags(),
		Action: importSources,
	}
}

func importSources(c *ucli.Context) error {
	if err := cli.MaxArgs(c, 1); err != nil {
		return err
	}
	dir, err := cli.Absolute(c, c.Args().First())
	if err != nil {
		return err
	}
	dir = filepath.Clean(dir)
	files, err := configFiles(c)
	if err != nil {
		return err
	}
	config, err := tapconfig.Read(dir)
	if errors.Is(err, tapconfig.ErrNone) {
		return cli.NotFound("sources import: %s", visible.Line(err.Error()))
	}
	if err != nil {
		return err
	}
	results := []importResult{}
	for _, p := range config.Providers(dir) {
		r := importResult{
			Emitter: p.Emitter,
			State:   importSkipped,
			Notes:   append([]string{}, p.Notes...),
			Reason:  p.Reason,
		}
		if p.Reason == "" {
			r.write(c, files, p.Name, p.Text)
		}
		results = append(results, r)
	}
	return showImport(cli.Out(c), imported{command: "sources import", what: "emitters",
		none: visible.Line(config.File) + " has no emitters", results: results})
}
