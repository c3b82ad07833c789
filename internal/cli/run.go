package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Flags and commands that every binary has.
const (
	helpFlag    = "help"
	versionFlag = "version"
	jsonFlag    = "json"
	helpCommand = "help"
)

// Run runs an app with args (the program's name first), prints its error, and returns its exit code. It adds --help,
// --version, --json, the completion scripts and the manual page. Flags may stand before and behind arguments.
//
// The context of the commands ends at SIGINT or SIGTERM; a second signal ends the process at once.
func Run(app *App, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case <-signals:
			// Before anything shows that the first signal came, the second one ends the process.
			signal.Stop(signals)
			cancel()
		case <-ctx.Done():
		}
	}()
	return RunContext(ctx, app, args, stdin, stdout, stderr)
}

// RunContext is [Run] with a context of the caller, and without signals: the commands end with ctx. Tests call it.
func RunContext(ctx context.Context, app *App, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	prepare(app, stdin, stdout, stderr)
	if len(args) > 1 && args[1] == completeCommand {
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
		err = w.run(ctx, app)
	}
	if err == nil {
		return ExitDone
	}
	return report(app, w, AsError(err))
}

// prepare adds the flags and commands that all apps share.
func prepare(app *App, stdin io.Reader, stdout, stderr io.Writer) {
	app.Reader, app.Writer, app.ErrWriter = stdin, stdout, stderr
	if find(app.Commands, completionCommandName) == nil {
		app.Commands = append(app.Commands, completionCommand(app.Name), manCommand())
	}
	for _, f := range []Flag{
		&BoolFlag{Name: jsonFlag, Usage: "print JSON: one document, or one object a line for streams"},
		&BoolFlag{Name: helpFlag, Aliases: []string{"h"}, Usage: "show help and examples"},
		&BoolFlag{Name: versionFlag, Usage: "print the version"},
	} {
		if !slices.ContainsFunc(app.Flags, func(have Flag) bool { return have.names()[0] == f.names()[0] }) {
			app.Flags = append(app.Flags, f)
		}
	}
}

// report prints why a command failed, once, and returns the exit code. If stdout takes no JSON, stderr has the reason.
func report(app *App, w *words, e *Error) int {
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
