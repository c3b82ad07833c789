package main

import (
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func sourcesCommand() *ucli.Command {
	r := &sourceResource
	return &ucli.Command{
		Name:  "sources",
		Usage: "list the sources of events that files name; stop, start and run them",
		Description: listedSources + "\n\nExamples:\n  tapctl sources\n" +
			"  tapctl sources try build.toml --run\n  tapctl sources run build\n  tapctl " +
			"sources log build -f",
		Action: shortAction(0, r.print),
		Subcommands: []*ucli.Command{
			r.listCommand("list sources", listedSources+"\n\nExamples:\n"+
				"  tapctl sources list --json | jq -r '.[] | select(.state==\"failed\") | "+
				".reason'"),
			r.short(&ucli.Command{
				Name: "show", Usage: "show one source",
				Description: "With --json, an object. A source that runs in several sessions has " +
					"sessions,\n" +
					"an array with its state in each.\n\nExamples:\n  tapctl sources show build",
			}, showSource),
			r.short(&ucli.Command{
				Name: "start", Usage: "start a source that was stopped, or that failed",
				Description: "Examples:\n  tapctl sources start build",
			}, ofSource(counted("started", (*client.Client).StartProvider))),
			r.short(&ucli.Command{
				Name:        "stop",
				Usage:       "stop a source until you start it, or the gateway starts again",
				Description: "Examples:\n  tapctl sources stop build",
			}, ofSource(counted("stopped", (*client.Client).StopProvider))),
			r.short(&ucli.Command{
				Name: "run", Usage: "make a source run now, whatever its schedule",
				Description: "It returns when the run has begun; tapctl sources log NAME shows " +
					"what came of it.\n\n" +
					"Examples:\n  tapctl sources run nightly",
			}, counted("started", (*client.Client).RunSource)),
			r.short(&ucli.Command{
				Name: "log",
				Usage: "show the last lines of a source: " +
					"what its command printed, and what became of its runs",
				Description: "Examples:\n  tapctl sources log build\n  tapctl sources log build " +
					"-f --last 10",
				Flags: []ucli.Flag{followFlag("its file is removed"), lastLinesFlag()},
			}, ofSource(logProvider), "follow"),
			sourcesTryCommand(),
			sourcesImportCommand(),
		},
	}
}

const listedSources = `Lists the sources of events (provider files of kind source): what each is, its stream, when
it ran and when it runs next. A state is running, waiting, done, stopped or failed.`

var sourceResource = resource[adminapi.Source]{
	list: func(c *command) ([]adminapi.Source, error) { return c.gw.Sources(c.ctx) },
	columns: []string{
		"NAME", "KIND", "STATE", "SESSION", "STREAM", "LAST RUN", "NEXT RUN", "RUNS", "REASON",
	},
	ink:   stateInk,
	inked: 2,
	row: func(s adminapi.Source) []any {
		return []any{s.Name, s.Kind, s.State, s.Session, s.Stream, atOrNever(s.LastRunAt),
			atOrNever(s.NextRunAt), s.Runs, s.Reason}
	},
	empty: func(c *command) string {
		return "no sources; a provider file of kind source names one: " + c.exampleFile()
	},
	argument: "NAME",
	find:     given("the name of a source", "sources"),
	suggest: func(c *command) {
		suggest(c, c.gw.Sources, func(s adminapi.Source) (word, about string) {
			return s.Name, s.Kind + " " + s.State
		})
	},
}

// ofSource does something to a provider if it is a source.
func ofSource(do func(*command, string) error) func(*command, string) error {
	return func(c *command, name string) error {
		if _, err := c.source(name); err != nil {
			return err
		}
		return do(c, name)
	}
}

// source returns the sources of a name.
func (c *command) source(name string) (found []adminapi.Source, err error) {
	all, err := c.gw.Sources(c.ctx)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(all, func(s adminapi.Source) bool { return s.Name != name })
	if len(found) == 0 {
		return nil, cli.NotFound("no file names a source %q: tapctl sources lists them", name)
	}
	return found, nil
}

func showSource(c *command, name string) error {
	found, err := c.source(name)
	if err != nil {
		return err
	}
	shown := shownSource{Source: found[0]}
	if len(found) > 1 {
		shown.Sessions = found
	}
	return c.out.List(shown, sourceResource.table(found), "")
}

// shownSource is a source in the JSON of sources show. A source that runs in several sessions, as a
// prompt does, has its state in the first session here, and its state in each session in Sessions.
type shownSource struct {
	adminapi.Source
	Sessions []adminapi.Source `json:"sessions,omitempty"`
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
