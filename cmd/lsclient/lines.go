package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/adrg/xdg"
	"golang.org/x/term"

	"tapgw/internal/cli"
)

// lineReader reads a person's lines.
type lineReader interface {
	next() <-chan readLine // sends the next line or an error
	isInteractive() bool   // a person types the lines
	close()
}

type readLine struct {
	text string
	err  error
}

// newLineReader returns a reader with editing and history on a terminal, else a plain one. While a line is edited,
// Ctrl-C is a key and not a signal.
func newLineReader(c *command) lineReader {
	in, ok := c.App.Reader.(*os.File)
	if !ok || !cli.Terminal(in) || !cli.Terminal(c.App.ErrWriter) || c.out.JSON {
		return &plainLines{in: bufio.NewReader(c.App.Reader)}
	}
	return newEditor(in, c)
}

// plainLines reads lines without editing.
type plainLines struct{ in *bufio.Reader }

func (p *plainLines) next() <-chan readLine {
	c := make(chan readLine, 1)
	go func() {
		text, err := p.in.ReadString('\n')
		if text != "" {
			err = nil
		}
		c <- readLine{strings.TrimRight(text, "\r\n"), err}
	}()
	return c
}

func (p *plainLines) isInteractive() bool { return false }

func (p *plainLines) close() {}

// editor reads lines from a terminal. While it waits for a line, the terminal is raw, and output goes above the line.
type editor struct {
	fd       int
	terminal *term.Terminal
	out      *console
	history  *history
}

const chatPrompt = "> "

func newEditor(in *os.File, c *command) *editor {
	e := &editor{fd: int(in.Fd()),
		history: openHistory(filepath.Join(xdg.StateHome, "tapgw", "lsclient-history"))} //nolint:gosec // a descriptor
	e.terminal = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keys{in, &e.history.ctrlC}, c.App.ErrWriter}, chatPrompt)
	e.terminal.History = e.history
	// All output goes through the console, above the line.
	e.out = &console{terminal: e.terminal, to: c.App.ErrWriter}
	if cli.Terminal(c.App.Writer) {
		c.out.W = e.out
	}
	c.out.Err = e.out
	return e
}

// keys reads from the terminal. It makes Ctrl-C an Enter with a note, because the line editor would treat it like
// Ctrl-D and keep the line.
type keys struct {
	io.Reader
	ctrlC *atomic.Bool
}

func (k keys) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	if i := bytes.IndexByte(p[:n], 3); i >= 0 {
		k.ctrlC.Store(true)
		p[i] = '\r'
		n = i + 1
	}
	return n, err
}

func (e *editor) next() <-chan readLine {
	c := make(chan readLine, 1)
	go func() {
		text, err := e.read()
		c <- readLine{text, err}
	}()
	return c
}

// read reads a prompt: a line, or pasted lines up to an Enter that is typed. Ctrl-C takes it away; a second one, when
// there is nothing to take away, ends the chat like Ctrl-D. The terminal stays raw meanwhile, so that no Ctrl-C is
// lost.
func (e *editor) read() (string, error) {
	before, err := term.MakeRaw(e.fd)
	if err != nil {
		return "", fmt.Errorf("reading the terminal: %w", err)
	}
	if width, height, err := term.GetSize(e.fd); err == nil {
		_ = e.terminal.SetSize(width, height)
	}
	e.out.raw(true)
	e.terminal.SetBracketedPasteMode(true)
	defer func() {
		e.terminal.SetBracketedPasteMode(false)
		e.out.raw(false)
		_ = term.Restore(e.fd, before)
	}()
	var lines []string
	warned := false
	for {
		text, err := e.terminal.ReadLine()
		lines = append(lines, text)
		switch {
		case e.history.ctrlC.Swap(false):
			empty := strings.Join(lines, "") == ""
			if empty && warned {
				return "", io.EOF
			}
			if empty {
				_, _ = fmt.Fprintln(e.out, "(Ctrl-C again, or Ctrl-D, ends the chat)")
			}
			lines, warned = nil, empty
		case !errors.Is(err, term.ErrPasteIndicator):
			return strings.Join(lines, "\n"), err
		}
	}
}

func (e *editor) isInteractive() bool { return true }

func (e *editor) close() { e.history.close() }

// console writes to a terminal, above the line that is being edited.
type console struct {
	terminal *term.Terminal
	to       io.Writer

	mu      sync.Mutex
	editing bool
}

func (c *console) raw(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.editing = on
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.editing {
		return c.terminal.Write(p)
	}
	return c.to.Write(p)
}

// history keeps the lines of earlier chats in a file.
type history struct {
	lines []string    // oldest first
	file  *os.File    // nil: it could not be opened
	ctrlC atomic.Bool // the line that ends was taken away, so it is not added
}

const maxHistory = 1000

func openHistory(path string) *history {
	h := &history{}
	if data, err := os.ReadFile(path); err == nil { //nolint:gosec // the user's own
		h.lines = strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		if len(h.lines) > maxHistory {
			h.lines = h.lines[len(h.lines)-maxHistory:]
			_ = os.WriteFile(path, []byte(strings.Join(h.lines, "\n")+"\n"), 0o600)
		}
	}
	if os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		h.file, _ = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the user's own
	}
	return h
}

// Add implements [term.History].
func (h *history) Add(line string) {
	if h.ctrlC.Load() || strings.TrimSpace(line) == "" || len(h.lines) > 0 && h.lines[len(h.lines)-1] == line {
		return
	}
	h.lines = append(h.lines, line)
	if h.file != nil {
		_, _ = h.file.WriteString(line + "\n")
	}
}

// Len implements [term.History].
func (h *history) Len() int { return len(h.lines) }

// At implements [term.History].
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }

func (h *history) close() {
	if h.file != nil {
		_ = h.file.Close()
	}
}
