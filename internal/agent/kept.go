package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/conversations"
	"tapgw/internal/langserver"
	"tapgw/internal/visible"
)

// Conversations are kept on disk, so that a later process can go on with them.

// Kept returns the store of the conversations of all workspaces.
func Kept() conversations.Store {
	return conversations.In(filepath.Join(workspace.StateDir(), "conversations"))
}

// FindKept returns the id of the kept conversation that a word means: its id, or the beginning of
// it. The error has an exit code.
func FindKept(word string) (string, error) {
	id, err := Kept().Find(word)
	return id, KeptError(err)
}

// LatestKept returns the id of the latest conversation about a directory. The error has an exit
// code.
func LatestKept(dir string) (string, error) {
	id, err := Kept().Latest(dir)
	if err == nil && id == "" {
		err = cli.NotFound("there is no conversation of %s yet; lsclient conversations lists all",
			dir)
	}
	return id, err
}

// ListKept lists the kept conversations, the last used first, and notes conversations that can't be
// read.
func ListKept(note func(format string, args ...any)) ([]conversations.Info, error) {
	list, faults, err := Kept().List()
	for _, f := range faults {
		note("lsclient: left out: %v", f)
	}
	return list, err
}

// KeptError gives errors of the store their exit codes and advice for the user.
func KeptError(err error) error {
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

// kept is the stored part of a conversation: its earlier turns, and the writer for the next ones.
type kept struct {
	id      string
	writer  *conversations.Writer // the zero Writer if its turns are not kept
	resumed bool
	turns   int                      // how many it had when it was opened
	last    []conversations.Turn     // the last turns, to show
	earlier []langserver.EarlierTurn // all turns, until the server gets them
	note    func(format string, args ...any)
}

// newKept begins a conversation, and deletes conversations that are too many or too old.
func (v *Conversation) newKept() *kept {
	w := Kept().New(v.Workspace.Dir)
	k := &kept{id: w.ID(), writer: new(conversations.Writer), note: v.Workspace.Note}
	config := v.Workspace.Config().Kept
	if !config.Save {
		return k
	}
	k.writer = w
	if err := Kept().Prune(conversations.Retention{Days: config.Days,
		Count: config.Keep}); err != nil {
		k.note("lsclient: old conversations stay: %v", err)
	}
	return k
}

// openKept opens a conversation by its id. With save = false it can't be written.
func (v *Conversation) openKept(id string) (*kept, error) {
	k := &kept{id: id, writer: new(conversations.Writer), note: v.Workspace.Note, resumed: true}
	var read conversations.Conversation
	var err error
	if v.Workspace.Config().Kept.Save {
		k.writer, read, err = Kept().Open(id)
	} else {
		read, err = Kept().Read(id)
	}
	if err != nil {
		return nil, KeptError(err)
	}
	if read.Workspace != v.Workspace.Dir && !v.Elsewhere {
		k.writer.Close()
		return nil,
			cli.Usage("conversation %s is about %s; go on there with -w %[2]s, or here with -w .",
				id, cli.OneLine(read.Workspace))
	}
	k.turns, k.earlier = len(read.Turns), earlierTurns(read.Turns)
	k.last = slices.Clone(read.Turns[max(0, k.turns-shownTurns):])
	if k.turns > 0 && v.Options.Model == "" {
		v.model = read.Turns[k.turns-1].Chosen
	}
	return k, nil
}

// event writes the item that an event ends: a tool call with the text before it.
func (k *kept) event(e langserver.Event) {
	switch e := e.(type) {
	case langserver.Text:
		k.writer.Text(e.Delta)
	case langserver.ToolCall:
		if e.State == langserver.Running {
			k.check(k.writer.Flush())
			return
		}
		k.check(k.writer.Tool(conversations.Tool{Name: e.Name, State: string(e.State),
			Input: e.Input, Result: e.Result, Error: e.Error}))
	}
}

// end writes how a turn ended.
func (k *kept) end(r langserver.Turn, err error) {
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

// check notes once that the conversation is not kept. After an error the writer ignores further
// writes.
func (k *kept) check(err error) {
	if err != nil {
		k.note("lsclient: the rest of this conversation is not kept: %v", err)
	}
}

// shownTurns is how many of its last turns a resumed conversation shows.
const shownTurns = 3

// Earlier returns the last turns of a resumed conversation, and how many there were before them.
func (v *Conversation) Earlier() (last []conversations.Turn, before int) {
	return v.kept.last, v.kept.turns - len(v.kept.last)
}

// Of a tool call of an earlier turn the model gets at most so many bytes, because it can call the
// tool again. Results of turns before the last few are left out, so that many more turns fit.
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
		turns = append(turns, langserver.EarlierTurn{Prompt: t.Prompt,
			Answer: earlierAnswer(t, most)})
	}
	return turns
}

// earlierAnswer tells the model its earlier answer and the tools that it called, with at most so
// many bytes of a result. A call is a line of JSON, so that a result can't pass for anything else.
func earlierAnswer(t conversations.Turn, most int) string {
	var calls, answer strings.Builder
	for _, s := range t.Steps {
		if s.Tool == nil {
			continue
		}
		call := *s.Tool
		if len(call.Input) > maxEarlierInput {
			call.Input, _ = json.Marshal(visible.Ends(string(call.Input), maxEarlierInput,
				maxEarlierInput))
		}
		call.Result, call.Error = earlierResult(call.Result, most), earlierResult(call.Error, most)
		if line, err := json.Marshal(call); err == nil {
			calls.Write(append(line, '\n'))
		}
	}
	if calls.Len() > 0 {
		answer.WriteString(
			"<earlier_tool_calls>\nThe tools that ran in this turn, long results shortened " +
				"or left out:\n" +
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
