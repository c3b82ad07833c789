// Package terminal is the terminal on which a person talks with an agent. The lower edge has the
// prompt that the person edits, a line that names the work in progress, and the newest lines of its
// output. All output scrolls by above it. The terminal stays raw from [Open] to [Terminal.Close],
// so Ctrl-C is always a key and typed text is never the answer to a question that came later.
package terminal

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	"tapgw/internal/chans"
	"tapgw/internal/terminal/status"
	"tapgw/internal/visible"
)

// Candidate is one way to complete a word.
type Candidate struct {
	Text string // takes the word's place
	Help string // a few words about it
}

// Options are the options of [Open]. All but In and Out may be left out. Complete and Interrupt run
// on the goroutine of the terminal or beside it: neither may wait for the terminal.
type Options struct {
	In, Out *os.File // the terminal
	Color   bool
	History string // the file that keeps earlier prompts; "": they are not kept
	Working string // the work at the beginning, see [Terminal.Working]
	// Complete returns the ways to complete a word: one that begins with @, or a prompt that begins
	// with /.
	Complete func(word string) []Candidate
	// Interrupt is called for Ctrl-C while a turn runs or a question waits.
	Interrupt func()
}

// ErrInterrupted is the error of [Terminal.Ask] when the person answers with Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// Terminal is an open terminal. Its methods may be called from several goroutines; output appears
// in the order of the calls. As an [io.Writer] it prints whole lines above the prompt.
type Terminal struct {
	program *tea.Program
	color   bool
	done    chan struct{} // closed when the program has ended
	columns atomic.Int64

	mu     sync.Mutex // guards the fields that follow
	queue  []string   // unread prompts
	closed bool       // the person has left
	part   string     // of a line that Write got
	ready  chan struct{}

	asking sync.Mutex // one question at a time
}

// Open takes the terminal over. The caller ends it with [Terminal.Close].
func Open(o Options) *Terminal {
	t := &Terminal{color: o.Color, done: make(chan struct{}), ready: make(chan struct{}, 1)}
	t.columns.Store(status.FirstWidth)
	profile := colorprofile.ASCII
	if o.Color {
		profile = colorprofile.ANSI
	}
	t.program = tea.NewProgram(newModel(t, o), tea.WithInput(o.In), tea.WithOutput(o.Out),
		tea.WithoutSignalHandler(), tea.WithColorProfile(profile))
	go func() {
		defer close(t.done)
		_, _ = t.program.Run() // the end of the program is the person's end: see leave
		t.leave()
	}()
	return t
}

// Close gives the terminal back and removes the prompt from it. Later output is discarded.
func (t *Terminal) Close() {
	t.change(func(m *model) { m.closing = true })
	t.program.Quit()
	<-t.done
}

// leave makes [Terminal.Read] return io.EOF once the queue is empty.
func (t *Terminal) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.wake()
}

// wake tells Read that there is a prompt or the end. The caller holds mu.
func (t *Terminal) wake() { chans.Wake(t.ready) }

// submit queues a prompt for Read.
func (t *Terminal) submit(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, text)
	t.wake()
}

// waiting returns the unread prompts.
func (t *Terminal) waiting() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.queue...)
}

// takeBack empties the queue and returns its prompts.
func (t *Terminal) takeBack() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue := t.queue
	t.queue = nil
	return queue
}

// Read returns the next prompt that the person sent, maybe some time ago, and prints it. It returns
// io.EOF when the person has left, and ctx's error when ctx ends. Only one goroutine may read at a
// time.
func (t *Terminal) Read(ctx context.Context) (string, error) {
	for {
		t.mu.Lock()
		if len(t.queue) > 0 {
			text := t.queue[0]
			t.queue = t.queue[1:]
			t.mu.Unlock()
			t.Print(Prompt(text))
			return text, nil
		}
		closed := t.closed
		t.mu.Unlock()
		if closed {
			return "", io.EOF
		}
		select {
		case <-t.ready:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// Prompt returns a prompt as the terminal prints it.
func Prompt(text string) string {
	return promptMark + strings.ReplaceAll(visible.Text(text), "\n", "\n"+promptIndent)
}

// change changes the model on its goroutine.
func (t *Terminal) change(f func(*model)) { t.program.Send(change(f)) }

// Print prints text above the prompt, with a line end. It prints control characters as they are:
// the caller cleans text that others wrote.
func (t *Terminal) Print(text string) {
	text = strings.TrimSuffix(strings.ReplaceAll(text, "\t", "    "), "\n")
	lines := strings.Split(ansi.Hardwrap(text, t.width(), true), "\n")
	for len(lines) > 0 {
		n := min(len(lines), printLines)
		// An empty text would not print a line.
		t.program.Send(tea.Println(strings.Join(lines[:n], "\n") + reset)())
		lines = lines[n:]
	}
}

// printLines is how many lines are printed at once. The library makes room for them first, so more
// lines than the terminal has would leave a gap.
const printLines = 6

// Write prints the whole lines of p above the prompt, and keeps the rest until its line ends. It
// never fails.
func (t *Terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	text := t.part + string(p)
	end := strings.LastIndexByte(text, '\n')
	t.part = text[end+1:]
	t.mu.Unlock()
	if end >= 0 {
		t.Print(text[:end])
	}
	return len(p), nil
}

// Clear clears the screen.
func (t *Terminal) Clear() { t.program.Send(tea.ClearScreen()) }

// Working shows the work in progress, with the time since the first such call: while it lasts,
// Ctrl-C calls Interrupt and sent prompts wait. "" says that the work has ended.
func (t *Terminal) Working(what string) {
	t.program.Send(working(visible.Line(what)))
}

// Coming shows incomplete text, below all that was printed. "" clears it.
func (t *Terminal) Coming(text string) { t.change(func(m *model) { m.coming = text }) }

// liveLines is how many lines of a running command are shown.
const liveLines = 5

// Live shows a line of a running command's output, dimmed, below the earlier lines. It makes
// control characters visible. "" clears all lines.
func (t *Terminal) Live(line string) {
	t.change(func(m *model) {
		if line == "" {
			m.live = nil
			return
		}
		m.live = append(m.live, visible.Line(line))
		m.live = m.live[max(0, len(m.live)-liveLines):]
	})
}

// Width returns how many columns printed text may have.
func (t *Terminal) Width() int { return t.width() }

func (t *Terminal) width() int { return int(t.columns.Load()) - 1 }

// Ask prints a question, and below it reads an answer of one line. Input that was typed before is
// not an answer: it stays in the prompt. Ask returns [ErrInterrupted] after Ctrl-C, io.EOF when the
// terminal is closed, and ctx's error when ctx ends.
func (t *Terminal) Ask(ctx context.Context, text, label string) (string, error) {
	t.asking.Lock()
	defer t.asking.Unlock()
	q := &question{label: label, answer: make(chan string, 1)}
	t.Print(text)
	t.change(func(m *model) { m.question = q })
	defer t.change(func(m *model) { m.question = nil })
	select {
	case answer, ok := <-q.answer:
		t.Print(label + visible.Line(answer))
		if !ok {
			return "", ErrInterrupted
		}
		return answer, nil
	case <-ctx.Done():
		t.Print(label)
		return "", context.Cause(ctx)
	case <-t.done:
		return "", io.EOF
	}
}

// question is a question that waits for its answer.
type question struct {
	label  string
	typed  string
	answer chan string // has room for one; closed: Ctrl-C
}

// key handles a key at a question. It reports whether the question is over. After an interrupt the
// caller closes answer.
func (q *question) key(k tea.KeyPressMsg) (over, interrupted bool) {
	switch k.String() {
	case "enter":
		q.answer <- strings.TrimSpace(q.typed)
		return true, false
	case "esc":
		q.answer <- ""
		return true, false
	case "ctrl+c", "ctrl+d":
		return true, true
	case "backspace", "ctrl+h":
		if runes := []rune(q.typed); len(runes) > 0 {
			q.typed = string(runes[:len(runes)-1])
		}
	case "ctrl+u":
		q.typed = ""
	default:
		q.typed += visible.Line(k.Text)
	}
	return false, false
}
