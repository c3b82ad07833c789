package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
)

const (
	shownLog   = 100 // lines, where nobody says
	logTail    = 8 << 20
	logLookout = 200 * time.Millisecond // how often a file that is followed is looked at
)

func logsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "logs",
		Usage: "show the log of the gateway in the background",
		Description: `That of tapgw ensure is gateway.log beside its token files, that of the service what
systemd or launchd keeps. A gateway in the foreground logs to its own stderr, which
nobody keeps: exit code 4. With --json a line is as it was logged: an object with
time, level, msg and what belongs to it.

Examples:
  tapgw logs -f
  tapgw logs --last 500 --json | jq 'select(.level=="WARN")'`,
		Flags: []ucli.Flag{
			&ucli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until Ctrl-C"},
			&ucli.IntFlag{Name: "last", Usage: "at most `N` of the lines that there are", Value: shownLog},
		},
		Action: showLogs,
	}
}

func showLogs(c *ucli.Context) error {
	if err := cli.MaxArgs(c, 0); err != nil {
		return err
	}
	last := c.Int("last")
	if last < 1 {
		return cli.Usage("flag --last: must be at least 1, got %d", last)
	}
	out := cli.Out(c)
	of, err := stateDir(configs.StateDir()).logs(c.Context, out)
	if err != nil {
		return err
	}
	err = of(c.Context, last, c.Bool("follow"), func(line string) error { return printLog(out, line) })
	if c.Bool("follow") && errors.Is(c.Err(), context.Canceled) {
		return nil
	}
	return err
}

// logPrinter hands the last lines of a log to print, and with follow those to come.
type logPrinter func(ctx context.Context, last int, follow bool, print func(line string) error) error

// logs finds the log of the gateway that runs here, else of the last one that left
// one.
func (d stateDir) logs(ctx context.Context, out *cli.Output) (logPrinter, error) {
	g, none := d.holder()
	if none == nil && len(g.Args) > 0 {
		return logFile(d.log()).print, nil
	}
	m, err := thisServiceManager()
	if err != nil {
		m = nil
	} else if file, err := ownServiceFile(m); err != nil || file == nil {
		m = nil
	}
	if none == nil && m != nil {
		now, err := m.look(ctx)
		if err != nil {
			return nil, err
		}
		if now.pid == g.PID {
			return m.logs, nil
		}
	}
	if none == nil {
		return nil, cli.NotFound("the gateway of process %d runs in the foreground (tapgw serve): it logs to the stderr of whoever started it and to no file; keep it with: tapgw serve 2>FILE", g.PID)
	}
	if m != nil {
		return m.logs, nil
	}
	if _, err := os.Stat(d.log()); err != nil {
		return nil, cli.NotFound("no gateway runs, and none of tapgw ensure has left a log: there is no %s", d.log())
	}
	out.Notef("tapgw: no gateway runs; this is the log of the last one of tapgw ensure")
	return logFile(d.log()).print, nil
}

// logFile is the path of a log that begins anew when it has become too long.
type logFile string

// print is a [logPrinter].
func (f logFile) print(ctx context.Context, last int, follow bool, print func(string) error) error {
	file, err := os.Open(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return cli.NotFound("there is no log: %s", f)
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	from := max(0, size-logTail)
	data, err := io.ReadAll(io.NewSectionReader(file, from, size-from))
	if err != nil {
		return err
	}
	lines := slices.Collect(strings.Lines(string(data)))
	rest := ""
	if n := len(lines); follow && n > 0 && !strings.HasSuffix(lines[n-1], "\n") {
		lines, rest = lines[:n-1], lines[n-1] // it is being written
	}
	for _, line := range lines[max(0, len(lines)-last):] {
		if err := print(strings.TrimSuffix(line, "\n")); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	tick := time.NewTicker(logLookout)
	defer tick.Stop()
	for at := size; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if info.Size() < at {
			at, rest = 0, ""
		}
		data, err := io.ReadAll(io.NewSectionReader(file, at, info.Size()-at))
		if err != nil {
			return err
		}
		at += int64(len(data))
		whole, next, found := cutLast(rest+string(data), "\n")
		if rest = next; !found {
			continue
		}
		for line := range strings.SplitSeq(whole, "\n") {
			if err := print(line); err != nil {
				return err
			}
		}
	}
}

// cutLast cuts a text at its last sep; all of it is behind one that is not there.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+len(sep):], true
}

// printed runs a program and hands on what it prints, a line each. Its error is the
// program's own words.
func printed(ctx context.Context, print func(string) error, name string, args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, maxLog)
	var failed error
	for failed == nil && lines.Scan() {
		failed = print(lines.Text())
	}
	if failed != nil {
		cancel()
	}
	err = cmd.Wait()
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return lines.Err()
}

// printLog prints a line of a log: as it is with --json, else as people read it.
func printLog(out *cli.Output, line string) error {
	fields, ok := logFields(line)
	switch {
	case !ok && out.JSON: // of a panic, or of a service manager
		return out.Line(map[string]string{"msg": line})
	case !ok:
		return out.Printf("%s\n", cli.Clean(line))
	case out.JSON:
		return out.Printf("%s\n", line)
	}
	var b strings.Builder
	for _, f := range fields {
		switch f.name {
		case "time":
			if t, err := time.Parse(time.RFC3339Nano, f.text); err == nil {
				f.text = t.Local().Format("15:04:05")
			}
			b.WriteString(out.Paint(cli.Dim, f.text))
		case "level":
			ink := map[string]cli.Ink{"WARN": cli.Yellow, "ERROR": cli.Red}[f.text]
			if ink == "" {
				ink = cli.Plain
			}
			b.WriteString("  " + out.Paint(ink, fmt.Sprintf("%-5s", f.text)))
		case "msg":
			b.WriteString("  " + f.text)
		default:
			b.WriteString("  " + out.Paint(cli.Blue, f.name+"=") + f.text)
		}
	}
	return out.Printf("%s\n", b.String())
}

// logField is a member of a line, as people read it.
type logField struct{ name, text string }

// logFields are the members of a line, in their order; false for what is no object.
func logFields(line string) (fields []logField, ok bool) {
	dec := json.NewDecoder(strings.NewReader(line))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, false
		}
		text := string(value)
		if value[0] == '"' {
			_ = json.Unmarshal(value, &text) // it was read before
		}
		fields = append(fields, logField{cli.OneLine(fmt.Sprint(name)), cli.OneLine(text)})
	}
	_, err := dec.Token()
	return fields, err == nil
}
