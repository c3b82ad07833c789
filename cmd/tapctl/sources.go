package main

import (
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

func sourcesCommand() *ucli.Command {
	action := func(done string, do func(c *command, name string) (int, error)) ucli.ActionFunc {
		return shortAction(1, func(c *command) error {
			name, err := sourceName(c)
			if err != nil {
				return err
			}
			if _, err := c.source(name); err != nil {
				return err
			}
			return providerAction(done, do)(c)
		})
	}
	return &ucli.Command{
		Name:  "sources",
		Usage: "list the sources of events that files name; stop, start and run them",
		Description: listedSources + "\n\nExamples:\n  tapctl sources\n" +
			"  tapctl sources try build.toml --run\n  tapctl sources run build\n  tapctl sources log build -f",
		Action: shortAction(0, listSources),
		Subcommands: []*ucli.Command{
			{
				Name: "list", Aliases: []string{"ls"}, Usage: "list sources",
				Description: listedSources + "\n\nExamples:\n" +
					"  tapctl sources list --json | jq -r '.[] | select(.state==\"failed\") | .reason'",
				Action: shortAction(0, listSources),
			},
			{
				Name: "show", Usage: "show one source", ArgsUsage: "NAME",
				Description: "With --json, an object. A source that runs in several sessions has sessions,\n" +
					"an array with its state in each.\n\nExamples:\n  tapctl sources show build",
				BashComplete: sourceNames(),
				Action:       shortAction(1, showSource),
			},
			{
				Name: "start", Usage: "start a source that was stopped, or that failed", ArgsUsage: "NAME",
				Description:  "Examples:\n  tapctl sources start build",
				BashComplete: sourceNames(),
				Action: action("started", func(c *command, name string) (int, error) {
					return c.gw.StartProvider(c.ctx, name)
				}),
			},
			{
				Name: "stop", Usage: "stop a source until you start it, or the gateway starts again", ArgsUsage: "NAME",
				Description:  "Examples:\n  tapctl sources stop build",
				BashComplete: sourceNames(),
				Action: action("stopped", func(c *command, name string) (int, error) {
					return c.gw.StopProvider(c.ctx, name)
				}),
			},
			{
				Name: "run", Usage: "make a source run now, whatever its schedule", ArgsUsage: "NAME",
				Description: "It returns when the run has begun; tapctl sources log NAME shows what came of it.\n\n" +
					"Examples:\n  tapctl sources run nightly",
				BashComplete: sourceNames(),
				Action: shortAction(1, providerAction("started", func(c *command, name string) (int, error) {
					return c.gw.RunSource(c.ctx, name)
				})),
			},
			sourceLogCommand(),
			sourcesTryCommand(),
			sourcesImportCommand(),
		},
	}
}

const listedSources = `Lists the sources of events (provider files of kind source): what each is, its stream, when
it ran and when it runs next. A state is running, waiting, done, stopped or failed.`

// sourceLogCommand is the log of a provider, for sources.
func sourceLogCommand() *ucli.Command {
	log := providerLogCommand()
	log.Usage = "show the last lines of a source: what its command printed, and what became of its runs"
	log.Description = "Examples:\n  tapctl sources log build\n  tapctl sources log build -f --last 10"
	log.BashComplete = sourceNames()
	log.Action = func(flags *ucli.Context) error {
		if flags.Bool("follow") {
			return longAction(1, ofSource(followProviderLog))(flags)
		}
		return shortAction(1, ofSource(providerLog))(flags)
	}
	return log
}

// ofSource does what it is given if there is a source of the name.
func ofSource(do func(*command) error) func(*command) error {
	return func(c *command) error {
		name, err := sourceName(c)
		if err == nil {
			_, err = c.source(name)
		}
		if err != nil {
			return err
		}
		return do(c)
	}
}

// sourceName is the argument of a subcommand.
func sourceName(c *command) (string, error) {
	name := c.Args().First()
	if name == "" {
		return "", cli.Usage("sources %s: needs the name of a source; tapctl sources lists them", c.Command.Name)
	}
	return name, nil
}

// source returns the sources of a name.
func (c *command) source(name string) (found []adminapi.Source, err error) {
	all, err := c.gw.Sources(c.ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		return nil, cli.NotFound("no file names a source %q: tapctl sources lists them", name)
	}
	return found, nil
}

// sourceNames completes the names of sources.
func sourceNames() ucli.BashCompleteFunc {
	return completing(func(c *command, flag string) {
		if flag != "" || c.NArg() > 0 {
			return
		}
		all, err := c.gw.Sources(c.ctx)
		if err != nil {
			return
		}
		last := ""
		for _, s := range all {
			if s.Name != last {
				cli.Candidate(c.Context, s.Name, s.Kind+" "+s.State)
			}
			last = s.Name
		}
	})
}

func listSources(c *command) error {
	all, err := c.gw.Sources(c.ctx)
	if err != nil {
		return err
	}
	return c.printSources(all)
}

func showSource(c *command) error {
	name, err := sourceName(c)
	if err != nil {
		return err
	}
	found, err := c.source(name)
	if err != nil {
		return err
	}
	if c.out.JSON {
		shown := shownSource{Source: found[0]}
		if len(found) > 1 {
			shown.Sessions = found
		}
		return c.out.Document(shown)
	}
	return c.printSources(found)
}

// shownSource is a source in the JSON of sources show. A source that runs in several sessions, as a prompt does, is
// there as it is in the first of them, and in Sessions as it is in each.
type shownSource struct {
	adminapi.Source
	Sessions []adminapi.Source `json:"sessions,omitempty"`
}

func (c *command) printSources(all []adminapi.Source) error {
	if c.out.JSON {
		return c.out.Document(list(all))
	}
	t := &cli.Table{Ink: stateInk(2), Columns: []string{
		"NAME", "KIND", "STATE", "SESSION", "STREAM", "LAST RUN", "NEXT RUN", "RUNS", "REASON",
	}}
	for _, s := range all {
		t.Row(
			s.Name,
			s.Kind,
			s.State,
			s.Session,
			s.Stream,
			atOrNever(s.LastRunAt),
			atOrNever(s.NextRunAt),
			s.Runs,
			s.Reason,
		)
	}
	return c.out.Table(t, "no sources; a provider file of kind source names one: "+c.providerFile("NAME"))
}

func atOrNever(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if t.After(time.Now()) {
		return "in " + time.Until(t).Round(time.Second).String()
	}
	return ago(t)
}
