package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/adrg/xdg"

	"tapgw/internal/cli"
	"tapgw/internal/terminal"
)

// lineReader reads a person's prompts.
type lineReader interface {
	next() <-chan readLine // sends the next prompt or an error
	isInteractive() bool   // a person types the prompts
	close()
}

type readLine struct {
	text string
	err  error
}

// newLineReader returns the prompts of a chat. On a terminal the chat gets [command.screen], which reads keys, shows
// what runs, and prints; interrupt is called for Ctrl-C while something runs. Elsewhere each line is a prompt.
func (c *command) newLineReader(interrupt func(), complete func(word string) []terminal.Candidate) lineReader {
	in, ok := c.App.Reader.(*os.File)
	out, shown := c.App.ErrWriter.(*os.File)
	if !ok || !shown || !cli.Terminal(in) || !cli.Terminal(out) || c.out.JSON {
		return &plainLines{in: bufio.NewReader(c.App.Reader)}
	}
	if c.isPlain() {
		return &plainLines{in: bufio.NewReader(in), prompt: out}
	}
	c.screen = terminal.Open(terminal.Options{
		In: in, Out: out, Color: cli.Color(out), Complete: complete, Interrupt: interrupt,
		Working: "starting the language server",
		History: filepath.Join(xdg.StateHome, "tapgw", "lsclient-history"),
	})
	c.display, c.out.Err = c.screen, c.screen
	if cli.Terminal(c.App.Writer) {
		c.out.W = c.screen
	}
	return &screenLines{c.screen}
}

// isPlain reports whether nothing may be redrawn: the terminal can't, or a screen reader reads it.
func (c *command) isPlain() bool {
	return c.Bool("plain") || os.Getenv("TERM") == "dumb" || os.Getenv("ACCESSIBLE") != ""
}

// plainLines reads lines that the terminal itself edits, or that no person types.
type plainLines struct {
	in     *bufio.Reader
	prompt io.Writer // nil: no person types
}

func (p *plainLines) next() <-chan readLine {
	if p.prompt != nil {
		_, _ = fmt.Fprint(p.prompt, "> ")
	}
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

func (p *plainLines) isInteractive() bool { return p.prompt != nil }

func (p *plainLines) close() {}

// screenLines reads prompts from the terminal that a chat has for itself.
type screenLines struct{ screen *terminal.Terminal }

func (s *screenLines) next() <-chan readLine {
	c := make(chan readLine, 1)
	go func() {
		text, err := s.screen.Read(context.Background()) // ends with close
		c <- readLine{text, err}
	}()
	return c
}

func (s *screenLines) isInteractive() bool { return true }

func (s *screenLines) close() { s.screen.Close() }
