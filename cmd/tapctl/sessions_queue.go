package main

import (
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

func queueCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "queue",
		Usage:     "list the prompts that wait in sessions; take one back, or send it now",
		ArgsUsage: "[ID] [cancel PROMPT|send PROMPT]",
		Description: `Lists the prompts that sessions have not begun, of one session or of all. "cancel" takes one
back; "send" gives it to the agent at once, into the turn that runs. What the agent has
already can be neither taken back nor sent again. PROMPT is the list's column PROMPT.

Examples:
  tapctl sessions queue
  tapctl sessions queue 3f2a
  tapctl sessions queue 3f2a cancel 7
  tapctl sessions queue send 7
  tapctl sessions queue --json | jq -r '.[].prompt'`,
		BashComplete: completing(func(c *command, flag string) {
			words := c.Args().Slice()
			switch at := len(words); {
			case flag != "":
			case at > 0 && isQueueAction(words[at-1]):
				c.suggestQueued()
			case at == 1:
				suggestQueueActions(c)
			case at == 0:
				suggestQueueActions(c)
				c.suggestSessions()
			}
		}),
		Action: shortAction(3, queueOfSessions),
	}
}

func isQueueAction(word string) bool { return word == "cancel" || word == "send" }

func suggestQueueActions(c *command) {
	cli.Candidate(c.Context, "cancel", "take a prompt back")
	cli.Candidate(c.Context, "send", "send a prompt into the turn that runs")
}

func (c *command) suggestQueued() {
	suggest(c, c.gw.Queue, func(q adminapi.QueuedPrompt) (word, about string) {
		return q.ID, cli.Shorten(cli.Clean(q.Prompt), 60)
	})
}

func queueOfSessions(c *command) error {
	words := c.Args().Slice()
	if len(words) < 2 {
		return queueResource.print(c)
	}
	session := ""
	if len(words) == 3 {
		session, words = words[0], words[1:]
	}
	action, prompt := words[0], words[1]
	if !isQueueAction(action) {
		return cli.Usage("sessions queue: %q is neither cancel nor send", action)
	}
	id, err := c.findSession(session)
	if err != nil {
		return err
	}
	act, done := c.gw.CancelQueued, "cancelled prompt"
	if action == "send" {
		act, done = c.gw.SendQueued, "sent prompt"
	}
	if err := act(c.ctx, id, prompt); err != nil {
		return err
	}
	return c.doneTo(prompt, done)
}

var queueResource = resource[adminapi.QueuedPrompt]{
	list:    listQueue,
	columns: []string{"PROMPT", "SESSION", "FROM", "STATE", "QUEUED", "TEXT"},
	row: func(q adminapi.QueuedPrompt) []any {
		state := "waits"
		if q.Sent {
			state = "with the agent"
		}
		from := strings.TrimPrefix(q.Source, "provider:")
		text := cli.Shorten(cli.OneLine(q.Prompt), 60)
		return []any{q.ID, q.Session, from, state, ago(q.QueuedAt), text}
	},
	empty: always("no prompt waits"),
}

// listQueue returns the waiting prompts of the session in the first argument, or of all sessions.
func listQueue(c *command) ([]adminapi.QueuedPrompt, error) {
	waiting, err := c.gw.Queue(c.ctx)
	if session := c.Args().First(); err == nil && session != "" {
		var id string
		id, err = c.findSession(session)
		waiting = slices.DeleteFunc(waiting, func(q adminapi.QueuedPrompt) bool {
			return q.Session != id
		})
	}
	return waiting, err
}
