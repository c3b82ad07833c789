package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/conversations"
	"tapgw/internal/langserver"
	"tapgw/internal/visible"
)

// resumeFlags returns the flags of commands that can go on with a kept conversation.
func resumeFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "continue", Aliases: []string{"c"},
			Usage: "go on with the workspace's latest conversation"},
		&ucli.StringFlag{Name: "resume", Usage: "go on with the conversation `ID`, or the one whose id begins so"},
	}
}

func (c *command) store() conversations.Store {
	return conversations.In(workspace.ConversationsDir())
}

// keptConversation is what is on disk of a conversation: its earlier turns, and the writer for the next ones.
type keptConversation struct {
	c       *command
	id      string
	writer  *conversations.Writer // nil: its turns are not kept
	resumed bool
	turns   int                      // how many it had when it was opened
	last    []conversations.Turn     // some of them, to show
	earlier []langserver.EarlierTurn // all of them, until the server gets them
}

// openKept opens the conversation that --continue or --resume names, else a new one.
func (c *command) openKept() (*keptConversation, error) {
	switch {
	case c.Bool("continue") && c.IsSet("resume"):
		return nil, cli.Usage("flags --continue and --resume: give one of them")
	case c.Bool("continue"):
		latest, err := c.latestKept()
		if err != nil {
			return nil, err
		}
		return c.resumeKept(latest)
	case c.IsSet("resume"):
		return c.resumeKept(c.String("resume"))
	}
	return c.newKept(), nil
}

// newKept begins a conversation, and deletes those that are too many or too old.
func (c *command) newKept() *keptConversation {
	w := c.store().New(c.workspace.Dir)
	k := &keptConversation{c: c, id: w.ID()}
	config := c.workspace.Config().Kept
	if !config.Save {
		return k
	}
	k.writer = w
	if err := c.store().Prune(conversations.Retention{Days: config.Days, Count: config.Keep}); err != nil {
		c.out.Notef("lsclient: old conversations stay: %v", err)
	}
	return k
}

// resumeKept opens the conversation that a word means. With save = false it only reads it.
func (c *command) resumeKept(word string) (*keptConversation, error) {
	id, err := c.store().Find(word)
	if err != nil {
		return nil, keptError(err)
	}
	k := &keptConversation{c: c, id: id, resumed: true}
	var read conversations.Conversation
	if c.workspace.Config().Kept.Save {
		k.writer, read, err = c.store().Open(id)
	} else {
		read, err = c.store().Read(id)
	}
	if err != nil {
		return nil, keptError(err)
	}
	if read.Workspace != c.workspace.Dir && !c.IsSet("workdir") {
		k.close()
		return nil, cli.Usage("conversation %s is about %s; go on there with -w %[2]s, or here with -w .", id,
			cli.OneLine(read.Workspace))
	}
	k.turns, k.earlier = len(read.Turns), earlierTurns(read.Turns)
	k.last = slices.Clone(read.Turns[max(0, k.turns-shownTurns):])
	if k.turns > 0 && !c.IsSet("model") {
		c.chosenModel = read.Turns[k.turns-1].Chosen
	}
	return k, nil
}

// keptError gives errors of the store their exit codes and says what to do.
func keptError(err error) error {
	var unknown *conversations.UnknownError
	var ambiguous *conversations.AmbiguousError
	var busy *conversations.BusyError
	var faulty *conversations.FileError
	switch {
	case errors.As(err, &unknown):
		return cli.NotFound("%v; lsclient conversations lists them", err)
	case errors.As(err, &ambiguous):
		return cli.Usage("%v: give more of the id", err)
	case errors.As(err, &busy):
		return &cli.Error{Exit: cli.ExitRefused, Code: "BUSY", Err: err,
			Message: err.Error() + ": end it there first, or begin a new conversation"}
	case errors.As(err, &faulty):
		return cli.Failed("%v; lsclient conversations delete removes it", err)
	}
	return err
}

// begin writes a turn's prompt.
func (k *keptConversation) begin(prompt string) {
	if k.writer != nil {
		k.check(k.writer.Prompt(prompt, cmp.Or(k.c.chosenModel, k.c.String("model"))))
	}
}

// event writes what an event ends: a tool call with the text before it.
func (k *keptConversation) event(e langserver.Event) {
	if k.writer == nil {
		return
	}
	switch e := e.(type) {
	case langserver.Text:
		k.writer.Text(e.Delta)
	case langserver.ToolCall:
		if e.State == langserver.Running {
			k.check(k.writer.Flush())
			return
		}
		k.check(k.writer.Tool(conversations.Tool{Name: e.Name, State: string(e.State), Input: e.Input, Result: e.Result,
			Error: e.Error}))
	}
}

// end writes how a turn ended.
func (k *keptConversation) end(r langserver.Turn, err error) {
	if k.writer == nil {
		return
	}
	end := conversations.End{Model: r.Model, Outcome: conversations.Completed}
	end.Usage, _ = json.Marshal(r.Usage)
	switch {
	case errors.Is(err, langserver.ErrCancelled):
		end.Outcome = conversations.Cancelled
	case err != nil:
		end.Outcome, end.Error = conversations.Failed, err.Error()
	}
	k.check(k.writer.End(end))
}

// check says once that the conversation is not kept: after an error the writer does nothing.
func (k *keptConversation) check(err error) {
	if err != nil {
		k.c.out.Notef("lsclient: the rest of this conversation is not kept: %v", err)
	}
}

func (k *keptConversation) close() {
	if k.writer != nil {
		k.writer.Close()
	}
}

// Of a tool call of an earlier turn the model gets at most so many bytes, because it can call the tool again. Results
// of turns before the last few are left out, so that many more turns fit.
const (
	maxEarlierInput  = 500
	maxEarlierResult = 2000
	turnsWithResults = 5
)

// earlierTurns returns the turns for a server that does not know them.
func earlierTurns(kept []conversations.Turn) (turns []langserver.EarlierTurn) {
	for i, t := range kept {
		most := maxEarlierResult
		if i < len(kept)-turnsWithResults {
			most = 0
		}
		turns = append(turns, langserver.EarlierTurn{Prompt: t.Prompt, Answer: earlierAnswer(t, most)})
	}
	return turns
}

// earlierAnswer tells the model what it answered and which tools it called, with at most so many bytes of a result. A
// call is a line of JSON, so that a result can't pass for anything else.
func earlierAnswer(t conversations.Turn, most int) string {
	var calls, answer strings.Builder
	for _, s := range t.Steps {
		if s.Tool == nil {
			continue
		}
		call := *s.Tool
		if len(call.Input) > maxEarlierInput {
			call.Input, _ = json.Marshal(visible.Ends(string(call.Input), maxEarlierInput, maxEarlierInput))
		}
		call.Result, call.Error = earlierResult(call.Result, most), earlierResult(call.Error, most)
		if line, err := json.Marshal(call); err == nil {
			calls.Write(append(line, '\n'))
		}
	}
	if calls.Len() > 0 {
		answer.WriteString(
			"<earlier_tool_calls>\nThe tools that ran in this turn, long results shortened or left out:\n" +
				calls.String() + "</earlier_tool_calls>\n\n",
		)
	}
	answer.WriteString(t.Text())
	switch t.Outcome {
	case conversations.Completed:
	case conversations.Failed:
		fmt.Fprintf(&answer, "\n(This turn failed: %s)", t.Error)
	default:
		answer.WriteString("\n(This turn was interrupted.)")
	}
	return strings.TrimSpace(answer.String())
}

func earlierResult(text string, most int) string {
	if most == 0 {
		return ""
	}
	return visible.Ends(text, most, most)
}
