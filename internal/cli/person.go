package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
)

// Confirm asks the person at a terminal a question and reports whether the answer is yes. Without
// an answer, it returns the cause of ctx's end.
func Confirm(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	_, _ = fmt.Fprintf(out, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // ends with the line, or with the process
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		return line == "y" || line == "yes", nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// Browse opens a URL in the user's browser, which outlives the command. It reports false if it
// finds no browser.
func Browse(url string) bool {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	return exec.Command(program, url).Start() == nil //nolint:gosec // the caller's own URL
}
