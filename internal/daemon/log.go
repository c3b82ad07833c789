package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"tapgw/internal/cli"
	"tapgw/internal/proc"
)

const (
	tailBytes     = 8 << 20 // of a log, in which the last lines are looked for
	followPeriod  = 200 * time.Millisecond
	maxLineLength = 1 << 20
)

// PrintFile calls emit with the last lines of a log file and, with follow, with each new line until
// ctx ends. It also follows a log that is emptied. The exit code is 4 when the file does not exist.
func PrintFile(
	ctx context.Context, path string, last int, follow bool, emit func(line string) error,
) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return cli.NotFound("there is no log: %s", path)
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	from := max(0, size-tailBytes)
	data, err := io.ReadAll(io.NewSectionReader(file, from, size-from))
	if err != nil {
		return err
	}
	lines := slices.Collect(strings.Lines(string(data)))
	partial := ""
	if n := len(lines); follow && n > 0 && !strings.HasSuffix(lines[n-1], "\n") {
		lines, partial = lines[:n-1], lines[n-1] // the gateway is still writing it
	}
	for _, line := range lines[max(0, len(lines)-last):] {
		if err := emit(strings.TrimSuffix(line, "\n")); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	return followFile(ctx, file, size, partial, emit)
}

// followFile calls emit with each line that is written behind an offset. partial is the
// beginning of the first of them.
func followFile(
	ctx context.Context, file *os.File, offset int64, partial string, emit func(string) error,
) error {
	tick := time.NewTicker(followPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if info.Size() < offset {
			offset, partial = 0, "" // the next gateway has emptied it
		}
		data, err := io.ReadAll(io.NewSectionReader(file, offset, info.Size()-offset))
		if err != nil {
			return err
		}
		offset += int64(len(data))
		text := partial + string(data)
		end := strings.LastIndexByte(text, '\n') + 1
		partial = text[end:]
		for line := range strings.Lines(text[:end]) {
			if err := emit(strings.TrimSuffix(line, "\n")); err != nil {
				return err
			}
		}
	}
}

// PrintCommand runs a program that prints a log, and calls emit with each line. Its error has the
// program's stderr.
func PrintCommand(ctx context.Context, command []string, emit func(line string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stderr proc.Head
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w", command[0], err)
	}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, maxLineLength)
	var failure error
	for failure == nil && lines.Scan() {
		failure = emit(lines.Text())
	}
	if failure != nil {
		cancel()
	}
	err = cmd.Wait()
	switch {
	case failure != nil:
		return failure
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return lines.Err()
}
