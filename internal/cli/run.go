package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	ucli "github.com/urfave/cli/v2"
)

// Run runs a command, reports its error and returns the exit code.

// Flags and commands that every binary has.
const (
	helpFlag    = "help"
	versionFlag = "version"
	jsonFlag    = "json"
	helpCommand = "help"
)

// Run runs an app with args (the program's name first), prints its error, and returns its exit
// code. It adds --help, --version, --json, the completion scripts and the manual page. Flags may
// stand before and behind arguments.
//
// The context of the commands ends at SIGINT or SIGTERM; a second signal ends the process at once.
func Run(app *ucli.App, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return runApp(untilSignal, app, args, stdin, stdout, stderr)
}

// RunContext is [Run] with a context of the caller, and without signals: the commands end with ctx.
// Tests call it.
func RunContext(
	ctx context.Context, app *ucli.App, args []string, stdin io.Reader, stdout, stderr io.Writer,
) int {
	return runApp(func() (context.Context, func()) {
		return ctx, func() {}
	}, app, args, stdin, stdout, stderr)
}

// untilSignal returns a context that ends at a signal. Call stop when it is no longer needed.
func untilSignal() (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			// The second signal ends the process, even before any output shows that the first came.
			signal.Stop(signals)
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}

// runApp runs an app. It calls start only for what may take its time: handling signals makes
// threads, which the help and the version need not wait for.
func runApp(
	start func() (context.Context, func()), app *ucli.App, args []string,
	stdin io.Reader, stdout, stderr io.Writer,
) int {
	prepare(app, stdin, stdout, stderr)
	if len(args) > 1 && args[1] == completeCommand {
		ctx, stop := start()
		defer stop()
		completeWords(ctx, app, args[2:])
		return ExitDone
	}
	w, err := sortWords(app, args[min(1, len(args)):])
	switch {
	case err != nil:
	case w.version:
		err = printVersion(app, w.json)
	case w.help:
		err = printHelp(stdout, app, w)
	default:
		ctx, stop := start()
		defer stop()
		err = app.RunContext(ctx, w.line(app))
	}
	if err == nil {
		return ExitDone
	}
	return report(app, w, AsError(err))
}

// prepare adds the flags and commands that all apps share, and keeps urfave/cli from printing by
// itself.
func prepare(app *ucli.App, stdin io.Reader, stdout, stderr io.Writer) {
	app.Reader, app.Writer, app.ErrWriter = stdin, stdout, stderr
	app.HideHelp, app.HideVersion, app.Suggest = true, true, false
	app.ExitErrHandler = func(*ucli.Context, error) {}
	app.OnUsageError = usageError
	app.SliceFlagSeparator = ""
	app.DisableSliceFlagSeparator = true
	if find(app.Commands, completionCommandName) == nil {
		app.Commands = append(app.Commands, completionCommand(app.Name), manCommand())
	}
	for _, f := range []ucli.Flag{
		&ucli.BoolFlag{Name: jsonFlag,
			Usage: "print JSON: one document, or one object a line for streams"},
		&ucli.BoolFlag{Name: helpFlag, Aliases: []string{"h"}, Usage: "show help and examples"},
		&ucli.BoolFlag{Name: versionFlag, Usage: "print the version"},
	} {
		if !slices.ContainsFunc(app.Flags, func(have ucli.Flag) bool {
			return have.Names()[0] == f.Names()[0]
		}) {
			app.Flags = append(app.Flags, f)
		}
	}
	if app.Action == nil {
		app.Action = func(*ucli.Context) error { return printHelp(stdout, app, &words{}) }
	}
	prepareCommands(app, app.Commands, nil)
}

func prepareCommands(app *ucli.App, commands, path []*ucli.Command) {
	for _, c := range commands {
		at := append(slices.Clone(path), c)
		c.HideHelp = true
		c.OnUsageError = usageError
		if c.Action == nil && len(c.Subcommands) > 0 {
			c.Action = func(*ucli.Context) error {
				var names []string
				for _, s := range c.Subcommands {
					if !s.Hidden {
						names = append(names, s.Name)
					}
				}
				w := words{path: at}
				return Usage("%s: needs a command: %s", w.name(app), strings.Join(names, ", "))
			}
		}
		prepareCommands(app, c.Subcommands, at)
	}
}

// usageError rephrases an error of the flag package.
func usageError(c *ucli.Context, err error, _ bool) error {
	// invalid value "x" for flag -timeout: parse error
	if rest, ok := strings.CutPrefix(err.Error(), "invalid value "); ok {
		if value, rest, ok := strings.Cut(rest, " for flag -"); ok {
			name, why, _ := strings.Cut(rest, ": ")
			return Usage("flag --%s: invalid value %s: %s", name, value, wants(c, name, why))
		}
	}
	return &Error{Exit: ExitUsage, Code: CodeUsage, Message: err.Error(), Err: err}
}

// wants describes the values that a flag takes, or else the reason why the given value is wrong.
func wants(c *ucli.Context, name, why string) string {
	flags := c.App.Flags
	if c.Command != nil {
		flags = append(slices.Clone(flags), c.Command.Flags...)
	}
	for _, f := range flags {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f.(type) {
		case *ucli.DurationFlag:
			return "want a time like 30s or 5m"
		case *ucli.IntFlag, *ucli.Int64Flag, *ucli.UintFlag, *ucli.Uint64Flag:
			return "want a whole number"
		}
	}
	return why
}

// report prints why a command failed, once, and returns the exit code. If stdout takes no JSON,
// stderr has the reason.
func report(app *ucli.App, w *words, e *Error) int {
	if e.Message == "" {
		return e.Exit
	}
	message := OneLine(e.Message)
	if w.json {
		err := (&Output{W: app.Writer}).Line(
			map[string]any{"error": map[string]string{"code": e.Code, "message": message}},
		)
		if err == nil {
			return e.Exit
		}
	}
	if e.Exit == ExitUsage {
		message += fmt.Sprintf(" (see %s --help)", w.name(app))
	}
	prefix := app.Name + ": "
	if Color(app.ErrWriter) {
		prefix += Red.paint("error: ")
	}
	_, _ = fmt.Fprintln(app.ErrWriter, prefix+message)
	return e.Exit
}
