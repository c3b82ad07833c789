package main

import (
	"fmt"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func showCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "show",
		Usage:     "show all of one session",
		ArgsUsage: "[ID]",
		Description: `What the list shows of it, its providers and tools, what waits for a person, what its
models used, and the end of its timeline.

Examples:
  tapctl sessions show
  tapctl sessions show review --json | jq -r '.toolNames[]'`,
		BashComplete: completeSession(),
		Action:       short(1, showSession),
	}
}

// shownLines are so many of the timeline.
const shownLines = 5

// sessionDetails are all of one session: what the list has, and more.
type sessionDetails struct {
	client.Session
	Connections []client.Provider     `json:"connections"`
	ToolNames   []string              `json:"toolNames"`
	Questions   []client.Question     `json:"questions"`
	Usage       client.Sums           `json:"usage"`
	Timeline    []client.TimelineLine `json:"timeline"`
}

func showSession(k *call) error {
	id, err := k.session(k.Args().First())
	if err != nil {
		return err
	}
	d, err := k.details(id)
	if err != nil {
		return err
	}
	if k.out.JSON {
		return k.out.Document(d)
	}
	return k.out.Printf("%s", d.text(k.out))
}

func (k *call) details(id string) (sessionDetails, error) {
	d := sessionDetails{Connections: []client.Provider{}, ToolNames: []string{}, Questions: []client.Question{}, Timeline: []client.TimelineLine{}}
	var err error
	if d.Session, err = k.gw.Session(k.ctx, id); err != nil {
		return d, err
	}
	connections, err := k.gw.Providers(k.ctx)
	if err != nil {
		return d, err
	}
	for _, p := range connections {
		if p.Session == id || p.Session == "all" {
			d.Connections = append(d.Connections, p)
		}
	}
	tools, err := k.gw.Tools(k.ctx, id)
	if err != nil {
		return d, err
	}
	for _, t := range tools {
		d.ToolNames = append(d.ToolNames, t.Name)
	}
	questions, err := k.gw.Questions(k.ctx)
	if err != nil {
		return d, err
	}
	for _, q := range questions {
		if q.Session == id {
			d.Questions = append(d.Questions, q)
		}
	}
	usage, err := k.gw.Usage(k.ctx, id)
	if err != nil {
		return d, err
	}
	d.Usage = usage.Total
	for line, err := range k.gw.Timeline(k.ctx, id, client.LogQuery{Last: shownLines}) {
		if err != nil {
			return d, err
		}
		d.Timeline = append(d.Timeline, line)
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
	state := d.State
	if d.Foreground {
		state += ", foreground"
	}
	line("id", d.ID)
	line("label", cli.OneLine(d.Label))
	line("host", cli.OneLine(d.Host))
	line("model", cli.OneLine(d.Model))
	line("state", o.Paint(stateInk(0)(0, state), state))
	line("cwd", cli.OneLine(d.CWD))
	line("created", ago(d.CreatedAt))
	for i, p := range d.Connections {
		name := ""
		if i == 0 {
			name = "providers"
		}
		fmt.Fprintf(&b, "%-11s%s, %s, %d in flight\n", name, cli.OneLine(p.Name), p.State, p.InFlight)
	}
	line("tools", cli.OneLine(strings.Join(d.ToolNames, " ")))
	if u := d.Usage; u.Calls > 0 {
		line("usage", fmt.Sprintf("%d calls of models in %s, %d tokens read, %d written (tapctl sessions usage)", u.Calls,
			(time.Duration(u.DurationMs)*time.Millisecond).Round(10*time.Millisecond), u.InputTokens, u.OutputTokens))
	}
	for _, q := range d.Questions {
		b.WriteString(questionText(o, q, false))
	}
	for _, l := range d.Timeline {
		b.WriteString(timelineText(o, l) + "\n")
	}
	return b.String()
}
