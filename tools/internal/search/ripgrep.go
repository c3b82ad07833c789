package search

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/proc"
	"tapgw/tools/internal/program"
)

// Search with ripgrep.

// run runs ripgrep in the tree and passes its output to read, which returns errEnough to
// stop early. Files that ripgrep cannot read are skipped.
func (t Tree) run(ctx context.Context, args []string, read func(*bufio.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.Ripgrep, args...)
	cmd.Dir = t.Dir
	cmd.Env = proc.Environ(map[string]string{"PATH": program.Path(nil, t.Dir)})
	cmd.WaitDelay = time.Second
	var stderr proc.Head
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("starting ripgrep: %w", err)
	}
	readErr := read(bufio.NewReaderSize(stdout, 64<<10))
	if readErr != nil {
		cancel()
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.Is(readErr, errEnough):
		return nil
	case readErr != nil:
		return fmt.Errorf("reading what ripgrep found: %w", readErr)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &exit) && exit.ExitCode() == 2 && stderr.String() != "":
		return errors.New(strings.Join(strings.Fields(stderr.String()), " "))
	case errors.As(err, &exit) && (exit.ExitCode() == 1 || exit.ExitCode() == 2):
		return nil // no line matches, or a file could not be read
	}
	return err
}

// errEnough stops a search that has found enough.
var errEnough = errors.New("enough")

func (t Tree) rgGrep(ctx context.Context, q Query, found *Found) error {
	args := []string{
		"--no-config", "--no-messages", "--color=never", "--no-heading", "--with-filename",
		"--null",
		"--line-number", "--column", "--crlf", "--hidden", "--no-mmap",
		fmt.Sprintf("--max-filesize=%d", maxFile),
	}
	if !q.Regexp {
		args = append(args, "--fixed-strings")
	}
	if ignoresCase(q.Text, q.Regexp) {
		args = append(args, "--ignore-case")
	}
	args = append(args, "--regexp="+q.Text)
	scope, err := t.scopeArgs(ctx, q.Include)
	if err != nil || scope == nil {
		return err
	}
	return t.run(ctx, append(args, scope...), func(r *bufio.Reader) error {
		return readMatches(r, q, found)
	})
}

// globChars match the characters that need a backslash in a pattern.
var globChars = lazyregexp.New(`[][*?{}!\\]`)

// maxArgs is how many bytes of file names ripgrep gets as arguments. Systems allow at
// least 1 MB.
const maxArgs = 512 << 10

// scopeArgs are the arguments that name the files to search: the files that match include, or all
// files if they are too many for a command line. ripgrep's own --glob would include files that
// .gitignore leaves out. The result is nil if there are no files to search.
func (t Tree) scopeArgs(ctx context.Context, include *Glob) (args []string, err error) {
	all := []string{"--glob=!.git"}
	for _, dir := range t.Skip {
		all = append(all, "--glob=!/"+globChars.ReplaceAllString(dir, `\$0`))
	}
	all = append(all, "--no-require-git", "--no-ignore-dot", "--no-ignore-global", ".")
	if include == nil {
		return all, nil
	}
	files, err := t.Files(ctx, include)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	args = append(args, "--no-ignore", "--")
	size := 0
	for _, f := range files {
		if size += len(f) + len("./\x00"); size > maxArgs {
			return all, nil
		}
		args = append(args, "./"+f)
	}
	return args, nil
}

// binaryNotes are the messages of ripgrep about a binary file: one for a file that ripgrep found,
// and one for a file among its arguments.
var binaryNotes = [][]byte{[]byte(": WARNING: stopped searching binary file"),
	[]byte(": binary file matches (found ")}

// binaryNote returns the path in a message about a binary file.
func binaryNote(line []byte) (path []byte, ok bool) {
	for _, note := range binaryNotes {
		if before, _, ok := bytes.Cut(line, note); ok {
			return before, true
		}
	}
	return nil, false
}

// readMatches reads lines of the form PATH NUL LINE:COLUMN:TEXT.
func readMatches(r *bufio.Reader, q Query, found *Found) error {
	var path []byte // of the next match; it may contain newlines
	last, isIncluded := "", false
	for {
		piece, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		before, rest, ok := bytes.Cut(piece, []byte{0})
		if !ok {
			if name, ok := binaryNote(piece); ok {
				found.removeFile(string(bytes.TrimPrefix(append(path, name...), []byte("./"))))
				path = path[:0]
			} else {
				path = append(path, piece...)
			}
			continue
		}
		path = append(path, before...)
		name := bytes.TrimPrefix(path, []byte("./"))
		path = path[:0]
		if string(name) != last {
			last = string(name)
			isIncluded = q.Include == nil || q.Include.Match(last)
		}
		m, cut, ok := parseMatch(rest, last)
		for errors.Is(err, bufio.ErrBufferFull) { // a very long line
			piece, err = r.ReadSlice('\n')
			cut.add(piece)
		}
		if !ok || !isIncluded {
			continue
		}
		m.Text = cut.text()
		if !found.add(m) {
			return errEnough
		}
	}
}

// parseMatch reads LINE:COLUMN: and puts the text behind it into an excerpt.
func parseMatch(rest []byte, path string) (m Match, e *excerpt, ok bool) {
	line, rest, ok1 := bytes.Cut(rest, []byte(":"))
	column, text, ok2 := bytes.Cut(rest, []byte(":"))
	m.Path = path
	var err1, err2 error
	m.Line, err1 = strconv.Atoi(string(line))
	col, err2 := strconv.Atoi(string(column))
	e = newExcerpt(col - 1)
	e.add(text)
	return m, e, ok1 && ok2 && err1 == nil && err2 == nil
}
