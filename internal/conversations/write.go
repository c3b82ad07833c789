package conversations

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"tapgw/internal/proc"
)

// Writer appends to a conversation that no other process writes meanwhile. The zero Writer writes
// no file. If writing fails, that call returns the error, and later calls have no effect: the file
// then ends with the last whole line. A Writer is for one goroutine at a time.
type Writer struct {
	store     Store
	id        string
	workspace string

	lock *proc.Lock
	file *os.File // nil: no turn has begun, or writing failed
	new  bool     // the file does not exist yet
	text strings.Builder
}

// New returns a writer for a new conversation about a workspace, with a random id. The first prompt
// makes its file, so a conversation without a turn leaves no file behind.
func (s Store) New(workspace string) *Writer {
	return &Writer{store: s, id: rand.Text(), workspace: workspace, new: true}
}

// Open reads a conversation by its whole id and returns a writer that goes on with it. It removes a
// last line that a process did not finish. The error is an [UnknownError], a [BusyError] or a
// [FileError].
func (s Store) Open(id string) (*Writer, Conversation, error) {
	if _, err := os.Lstat(s.path(id)); errors.Is(err, fs.ErrNotExist) {
		return nil, Conversation{}, &UnknownError{id}
	}
	lock, err := s.lock(id)
	if err != nil {
		return nil, Conversation{}, err
	}
	w := &Writer{store: s, id: id, lock: lock}
	c, good, err := s.read(id)
	if err == nil {
		w.file, err = openFile(s.path(id), os.O_WRONLY|os.O_APPEND)
	}
	if err == nil {
		err = w.file.Truncate(good)
	}
	if err != nil {
		w.Close()
		return nil, Conversation{}, err
	}
	w.workspace = c.Workspace
	return w, c, nil
}

// ID returns the conversation's id.
func (w *Writer) ID() string { return w.id }

// Prompt begins a turn. model is the id of the model that the user chose, "" for the default.
func (w *Writer) Prompt(prompt, model string) error {
	if w.new {
		if err := w.create(prompt); err != nil {
			return err
		}
	}
	w.text.Reset()
	return w.write(line{Type: promptLine, At: now(), Text: bounded(prompt), Model: model})
}

// create makes the conversation's file.
func (w *Writer) create(prompt string) (err error) {
	w.new = false
	if err := proc.PrivateDir(w.store.dir); err != nil {
		return err
	}
	if w.lock, err = w.store.lock(w.id); err != nil {
		return err
	}
	w.file, err = os.OpenFile(w.store.path(w.id), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND,
		0o600)
	if err != nil {
		return fmt.Errorf("keeping the conversation: %w", err)
	}
	return w.write(line{Type: headerLine, At: now(), Version: version, ID: w.id,
		Title: title(prompt), Workspace: w.workspace})
}

// Text adds a piece of the model's text. It is written with the next tool call or the turn's end.
func (w *Writer) Text(delta string) { w.text.WriteString(delta) }

// Flush writes the text so far.
func (w *Writer) Flush() error {
	if w.text.Len() == 0 {
		return nil
	}
	text := w.text.String()
	w.text.Reset()
	return w.write(line{Type: textLine, Text: bounded(text)})
}

// Tool adds a tool call that has ended.
func (w *Writer) Tool(t Tool) error {
	if err := w.Flush(); err != nil {
		return err
	}
	t.Input, t.Result, t.Error = boundedJSON(t.Input), bounded(t.Result), bounded(t.Error)
	return w.write(line{Type: toolLine, Tool: &t})
}

// End ends the turn.
func (w *Writer) End(e End) error {
	if err := w.Flush(); err != nil {
		return err
	}
	return w.write(line{Type: endLine, At: now(), Model: e.Model, Usage: boundedJSON(e.Usage),
		Outcome: e.Outcome, Error: bounded(e.Error)})
}

// write appends a line in one step.
func (w *Writer) write(l line) error {
	if w.file == nil {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(l)
	if err == nil {
		_, err = w.file.Write(b.Bytes())
	}
	if err != nil {
		_ = w.file.Close()
		w.file = nil
		return fmt.Errorf("keeping the conversation: %w", err)
	}
	return nil
}

// Close lets other processes go on with the conversation. It returns no error, because every line
// is in the file already.
func (w *Writer) Close() {
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
	if w.lock != nil {
		w.lock.Unlock()
		w.lock = nil
	}
}

func now() *time.Time { return new(time.Now().UTC()) }
