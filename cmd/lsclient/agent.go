package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/langserver"
)

// turnFlags are those of commands that run turns.
func turnFlags() []ucli.Flag {
	return append([]ucli.Flag{
		&ucli.StringFlag{Name: "model", Aliases: []string{"m"},
			Usage: "`ID` of the model (default: the server's, see lsclient models)"},
		&ucli.IntFlag{Name: "max-rounds", Usage: "end a turn after `N` rounds of tool calls", DefaultText: "25"},
		&ucli.StringFlag{Name: "gateway",
			Usage: "`auto|on|off|URL`: be a session of a gateway where one runs, or fail, or not", DefaultText: "auto"},
		&ucli.StringFlag{Name: "label", Usage: "the session's `LABEL` there", DefaultText: "the workspace's name"},
	}, policyFlags()...)
}

func agentCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "agent",
		Usage:     "run an agent turn",
		ArgsUsage: "PROMPT|-",
		Description: `What the model says goes to stdout as it comes, what tools do to stderr. With --json
each event is a line, and the last is {"type":"done",…}. Commands, paths outside the
workspace and MCP tools are refused unless lsclient.toml allows them, --yes does, or
you do (--ask). Ctrl-C ends the turn, with the tool that runs in it.

Where a gateway runs, the turn is a session there: its providers' tools are in it,
their gates apply, and what they inject has a turn after it.

Examples:
  lsclient agent 'why does the build fail?' --ask
  git diff | lsclient agent - --model gpt-4.1
  lsclient agent -w ~/src/app --tools ./my-tools 'use my_tool' --json | jq -c .`,
		Flags:  turnFlags(),
		Action: action(1, 0, runAgent),
	}
}

// turnOptions puts the flags of a turn over the configuration.
func (k *call) turnOptions() error {
	if k.IsSet("max-rounds") {
		if k.rounds = k.Int("max-rounds"); k.rounds < 1 || k.rounds > 500 {
			return cli.Usage("flag --max-rounds: must be 1 to 500")
		}
	}
	return nil
}

func runAgent(k *call) error {
	if k.NArg() == 0 {
		return cli.Usage("agent: needs a prompt, or - to read it from stdin")
	}
	prompt, err := cli.Text(k.Context, k.Args().First())
	if err != nil {
		return err
	}
	if strings.TrimSpace(prompt) == "" {
		return cli.Usage("agent: the prompt is empty")
	}
	if err := k.turnOptions(); err != nil {
		return err
	}
	v, err := k.converse(k.ctx, langserver.Agent)
	if err != nil {
		return err
	}
	defer v.close(context.WithoutCancel(k.ctx))
	show := &shower{k: k, v: v}
	err = v.turn(k.ctx, prompt, "", show)
	for err == nil && v.joined != nil { // what was injected meanwhile
		p, ok := v.joined.awaited(k.ctx)
		if !ok {
			break
		}
		show.injected(p.Prompt)
		err = v.turn(k.ctx, p.Prompt, p.Source, show)
	}
	return err
}

// turn runs one turn and shows it.
func (v *conversation) turn(ctx context.Context, prompt, source string, show *shower) error {
	run := func(ctx context.Context, prompt string) (langserver.Turn, error) {
		return v.Turn(ctx, prompt, show.event)
	}
	var result langserver.Turn
	var err error
	if v.joined != nil {
		result, err = v.joined.around(ctx, prompt, source, run)
	} else {
		result, err = run(ctx, prompt)
	}
	return show.done(result, worded(err))
}

// shower shows what happens in turns: text on stdout and the rest on stderr, or
// all as JSON.
type shower struct {
	k *call
	v *conversation

	middle bool // of a line on stdout
}

// eventLine is an event as --json shows it.
type eventLine struct {
	Type     string          `json:"type"`
	Round    int             `json:"round,omitempty"`
	Delta    string          `json:"delta,omitempty"`
	ID       string          `json:"id,omitempty"`
	Name     string          `json:"name,omitempty"`
	State    string          `json:"state,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
	Result   string          `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
	Severity string          `json:"severity,omitempty"`
	Message  string          `json:"message,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
}

func (s *shower) event(e langserver.Event) {
	line := eventLine{}
	switch e := e.(type) {
	case langserver.Text:
		line = eventLine{Type: "text", Round: e.Round, Delta: e.Delta}
		s.text(e.Delta)
	case langserver.Reasoning:
		line = eventLine{Type: "reasoning", Round: e.Round, Delta: e.Delta}
	case langserver.ToolCall:
		line = eventLine{Type: "tool", Round: e.Round, ID: e.ID, Name: e.Name, State: string(e.State), Result: e.Result,
			Error: e.Error}
		if e.State == langserver.Running {
			line.Input = e.Input
		} else if s.v.joined != nil {
			s.v.joined.toolDone(e)
		}
		s.tool(e)
	case langserver.Notice:
		line = eventLine{Type: "notice", Severity: e.Severity, Message: e.Message}
		s.note("%s: %s", e.Severity, cli.Clean(e.Message))
	default:
		return
	}
	if s.k.out.JSON {
		_ = s.k.out.Line(line)
	}
}

// text shows what the model says.
func (s *shower) text(delta string) {
	if s.k.out.JSON || delta == "" {
		return
	}
	delta = cli.Clean(delta)
	_ = s.k.out.Printf("%s", delta)
	s.middle = !strings.HasSuffix(delta, "\n")
}

// note shows a line beside the text, after a question that waits for its answer.
func (s *shower) note(format string, args ...any) {
	s.v.policy.mu.Lock()
	defer s.v.policy.mu.Unlock()
	s.endLine()
	s.k.out.Notef(format, args...)
}

func (s *shower) endLine() {
	if s.middle {
		s.middle = false
		_ = s.k.out.Printf("\n")
	}
}

func (s *shower) tool(e langserver.ToolCall) {
	paint := func(ink cli.Ink, text string) string { return ink.On(s.k.App.ErrWriter, text) }
	switch e.State {
	case langserver.Running:
		s.note("%s %s", paint(cli.Blue, "• "+e.Name), paint(cli.Dim, cli.Shorten(cli.Clean(string(e.Input)), 100)))
	case langserver.Completed:
		if s.k.out.Verbose {
			s.note("%s %s", paint(cli.Green, "✓ "+e.Name), paint(cli.Dim, cli.Shorten(cli.Clean(e.Result), 100)))
		}
	case langserver.Failed:
		s.note("%s %s", paint(cli.Red, "✗ "+e.Name), cli.Shorten(cli.Clean(e.Error), 200))
	case langserver.Cancelled:
		s.note("%s", paint(cli.Yellow, "– "+e.Name+" cancelled"))
	}
}

// injected shows a prompt that came through the gateway.
func (s *shower) injected(prompt string) {
	if s.k.out.JSON {
		_ = s.k.out.Line(eventLine{Type: "prompt", Prompt: prompt})
		return
	}
	s.note("» %s", cli.Shorten(cli.Clean(prompt), 100))
}

// done shows how a turn ended.
func (s *shower) done(r langserver.Turn, err error) error {
	s.endLine()
	if !s.k.out.JSON {
		return err
	}
	line := struct {
		Type         string            `json:"type"`
		Conversation string            `json:"conversation"`
		Turn         string            `json:"turn,omitempty"`
		Model        string            `json:"model,omitempty"`
		Text         string            `json:"text"`
		Usage        langserver.Usage  `json:"usage"`
		Error        map[string]string `json:"error,omitempty"`
	}{Type: "done", Conversation: s.v.ID(), Turn: r.ID, Model: r.Model, Text: r.Text, Usage: r.Usage}
	if err == nil {
		return s.k.out.Line(line)
	}
	e := cli.AsError(err)
	line.Error = map[string]string{"code": e.Code, "message": e.Message}
	if err := s.k.out.Line(line); err != nil {
		return fmt.Errorf("writing the end: %w", err)
	}
	return cli.Reported(e.Exit)
}
