package main

import (
	"fmt"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/visible"
)

func showCommand() *ucli.Command {
	return sessionResource.short(&ucli.Command{
		Name: "show", Usage: "show one session with its providers, tools and timeline",
		Description: `Shows what the list does, the session's providers and tools, its open questions, what its
models used, and the end of its timeline.

Examples:
  tapctl sessions show
  tapctl sessions show review --json | jq -r '.toolNames[]'`,
	}, showSession)
}

// shownLines is how many lines of the timeline are shown.
const shownLines = 5

// sessionDetails is one session with its providers, tools, questions, usage and the end of its
// timeline.
type sessionDetails struct {
	adminapi.Session
	Connections []adminapi.Provider `json:"connections"`
	ToolNames   []string            `json:"toolNames"`
	Questions   []adminapi.Question `json:"questions"`
	Usage       adminapi.Sums       `json:"usage"`
	Timeline    []timelineRow       `json:"timeline"`
}

func showSession(c *command, id string) error {
	d, err := c.details(id)
	if err != nil {
		return err
	}
	return c.out.Result(d, "%s", d.text(c.out))
}

func (c *command) details(id string) (sessionDetails, error) {
	d := sessionDetails{ToolNames: []string{}, Timeline: []timelineRow{}}
	var err error
	if d.Session, err = c.gw.Session(c.ctx, id); err != nil {
		return d, err
	}
	connections, err := c.gw.Providers(c.ctx)
	if err != nil {
		return d, err
	}
	d.Connections = slices.DeleteFunc(list(connections), func(p adminapi.Provider) bool {
		return p.Session != id && p.Session != "all"
	})
	tools, err := c.gw.Tools(c.ctx, id)
	if err != nil {
		return d, err
	}
	for _, t := range tools {
		d.ToolNames = append(d.ToolNames, t.Name)
	}
	questions, err := c.gw.Questions(c.ctx)
	if err != nil {
		return d, err
	}
	d.Questions = slices.DeleteFunc(list(questions), func(q adminapi.Question) bool {
		return q.Session != id
	})
	usage, err := c.gw.Usage(c.ctx, id)
	if err != nil {
		return d, err
	}
	d.Usage = usage.Total
	for line, err := range c.gw.Timeline(c.ctx, id, client.LogQuery{Last: shownLines}) {
		if err != nil {
			return d, err
		}
		d.Timeline = append(d.Timeline, timelineRow{TimelineLine: line})
	}
	return d, nil
}

// text is a session as people read it.
func (d *sessionDetails) text(o *cli.Output) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-11s%s\n", name, value)
		}
	}
	state := stateText(d.Session)
	line("id", d.ID)
	line("label", cli.OneLine(d.Label))
	line("host", cli.OneLine(d.Host))
	line("model", cli.OneLine(d.Model))
	line("state", o.Paint(stateInk(state), state))
	line("waits for", cli.OneLine(strings.Join(d.WaitsFor, ", ")))
	line("cwd", cli.OneLine(d.CWD))
	line("repository", cli.OneLine(d.Repository))
	line("created", ago(d.CreatedAt))
	for i, p := range d.Connections {
		name := ""
		if i == 0 {
			name = "providers"
		}
		fmt.Fprintf(&b, "%-11s%s, %s, %d in flight\n", name, cli.OneLine(p.Name), p.State,
			p.InFlight)
	}
	line("tools", cli.OneLine(strings.Join(d.ToolNames, " ")))
	if u := d.Usage; u.Calls > 0 {
		line("usage", fmt.Sprintf("%s in %s, %d tokens read, %d written (tapctl sessions usage)",
			visible.Count(u.Calls, "model call"), milliseconds(u.DurationMs), u.Input, u.Output))
	}
	for _, q := range d.Questions {
		b.WriteString(questionText(o, q, false))
	}
	for _, l := range d.Timeline {
		b.WriteString(timelineText(o, l.TimelineLine) + "\n")
	}
	return b.String()
}
