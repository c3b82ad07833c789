// Package conversations keeps conversations with a language server on disk: one file for each, a
// JSON object a line, appended while a turn runs. So a process that dies loses only the part of its
// turn that it had not written yet. Only one process at a time writes a conversation.
package conversations

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Info describes a conversation, as lists show it. Title is the beginning of the first prompt, and
// Model the model that answered last, for people.
type Info struct {
	ID        string    `json:"id"`
	Title     string    `json:"title"`
	Workspace string    `json:"workspace"` // absolute
	Model     string    `json:"model"`
	Turns     int       `json:"turns"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// ShortID returns the beginning of the id. It is enough to find the conversation, because ids are
// random.
func (i Info) ShortID() string { return i.ID[:min(8, len(i.ID))] }

// Conversation is a kept conversation with all its turns, oldest first.
type Conversation struct {
	Info
	Turns []Turn `json:"turns"` // hides the number of Info
}

// Turn is a prompt and its result. Outcome is "" if the process that ran the turn did not write its
// end.
type Turn struct {
	At     time.Time `json:"at"`
	Prompt string    `json:"prompt"`
	// id of the model that the user chose; "": the default
	Chosen  string          `json:"chosenModel,omitempty"`
	Steps   []Step          `json:"steps"`
	Model   string          `json:"model,omitempty"` // the model that answered
	Usage   json.RawMessage `json:"usage,omitempty"`
	Outcome Outcome         `json:"outcome"`
	Error   string          `json:"error,omitempty"`
}

// Step is a text of the model or a tool call, whichever is set.
type Step struct {
	Text string `json:"text,omitempty"`
	Tool *Tool  `json:"tool,omitempty"`
}

// Tool is a tool call that has ended. State is the language server's word: completed, error or
// cancelled.
type Tool struct {
	Name   string          `json:"name"`
	State  string          `json:"state"`
	Input  json.RawMessage `json:"input,omitempty"`
	Result string          `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Outcome says how a turn ended.
type Outcome string

// Outcomes of a turn. A turn without one was interrupted: its process died, or it still runs.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
)

// End is how a turn ended: the model that answered, the tokens that it used as JSON, and the
// error's text.
type End struct {
	Model   string
	Usage   json.RawMessage
	Outcome Outcome
	Error   string
}

// Text returns the model's texts of a turn, one after the other.
func (t Turn) Text() string {
	var b strings.Builder
	for _, s := range t.Steps {
		b.WriteString(s.Text)
	}
	return b.String()
}

// version is the version of the file format. A reader refuses a later one.
const version = 1

// Kinds of lines. The first line of a file is its header. Listing relies on "type" being the first
// member.
const (
	headerLine = "conversation"
	promptLine = "prompt"
	textLine   = "text"
	toolLine   = "tool"
	endLine    = "end"
)

// line is a line of a file.
type line struct {
	Type string     `json:"type"`
	At   *time.Time `json:"at,omitempty"`

	// A header.
	Version   int    `json:"version,omitempty"`
	ID        string `json:"id,omitempty"`
	Title     string `json:"title,omitempty"`
	Workspace string `json:"workspace,omitempty"`

	// A prompt's text or a text of the model; the model that was chosen or that answered.
	Text  string `json:"text,omitempty"`
	Model string `json:"model,omitempty"`

	Tool *Tool `json:"tool,omitempty"`

	// An end.
	Usage   json.RawMessage `json:"usage,omitempty"`
	Outcome Outcome         `json:"outcome,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// maxText bounds each text of a file, in bytes. A longer text is cut and says so, because a reader
// refuses lines that are longer than a writer's longest.
const maxText = 4 << 20

func bounded(text string) string {
	if len(text) <= maxText {
		return text
	}
	cut := maxText
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s\n[%d more bytes were not kept]", text[:cut], len(text)-cut)
}

// boundedJSON returns a value, or null if it is no JSON or too long.
func boundedJSON(value json.RawMessage) json.RawMessage {
	if len(value) > maxText || !json.Valid(value) {
		return nil
	}
	return value
}

const maxTitle = 100 // characters

// title is the first line of a prompt that is not empty.
func title(prompt string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(prompt), "\n")
	if r := []rune(strings.TrimSpace(first)); len(r) > maxTitle {
		return string(r[:maxTitle-1]) + "…"
	}
	return strings.TrimSpace(first)
}
