package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/proc"
	"tapgw/internal/visible"
)

// States of an imported MCP server or emitter.
const (
	importWritten   = "written"
	importNew       = "new"       // with --dry-run
	importUnchanged = "unchanged" // the file has the same content already
	importExists    = "exists"    // the file has another content
	importSkipped   = "skipped"   // it can't be a provider
)

// importResult is an import's report on an MCP server or an emitter, in JSON.
type importResult struct {
	Server    string   `json:"server,omitempty"`
	Emitter   string   `json:"emitter,omitempty"`
	State     string   `json:"state"`
	File      string   `json:"file,omitempty"`
	Variables []string `json:"variables,omitzero"` // that the gateway's environment must have
	Notes     []string `json:"notes"`
	Reason    string   `json:"reason,omitempty"` // why it was skipped

	text []byte
}

func (r *importResult) name() string { return cli.OneLine(cmp.Or(r.Server, r.Emitter)) }

func importFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "dry-run", Aliases: []string{"n"},
			Usage: "show the files and write nothing"},
	}
}

// write writes a provider file beside the config in use, or with --dry-run only reports the change.
func (r *importResult) write(c *ucli.Context, files configs.Files, name string, text []byte) {
	r.State = importSkipped
	path, err := files.UserProvider(name)
	if err != nil {
		r.Reason = err.Error()
		return
	}
	if _, faults := configs.ParseProvider(path, text); len(faults) > 0 {
		r.Reason = faults[0].Message
		return
	}
	r.File, r.text = path, text
	if c.Bool("dry-run") {
		r.State = importNew
		_, err = os.Lstat(path)
		if err == nil {
			err = fs.ErrExist
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		r.State = importWritten
		err = proc.WriteNew(path, text)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		r.State = importExists
		// A provider file.
		if has, err := os.ReadFile(path); err == nil && bytes.Equal(has, text) { //nolint:gosec
			r.State = importUnchanged
		}
	case err != nil:
		r.State, r.Reason = importSkipped, err.Error()
	}
}

// imported has the results of an import command, the word for the imported things, and the message
// if there were no such things.
type imported struct {
	command, what, none string
	results             []importResult
}

// showImport prints each result. It fails if an import was skipped.
func showImport(out *cli.Output, i imported) error {
	skipped := 0
	for _, r := range i.results {
		if r.State == importSkipped {
			skipped++
		}
	}
	switch err := out.Show(i.results, func() error { return printImport(out, i.results) }); {
	case err != nil:
		return err
	case len(i.results) == 0:
		out.Notef("%s", i.none)
	case skipped > 0 && out.JSON:
		return cli.Reported(cli.ExitFailed)
	case skipped > 0:
		return cli.Failed("%s: %d of %d %s were skipped", i.command, skipped, len(i.results),
			i.what)
	}
	return nil
}

func printImport(out *cli.Output, results []importResult) error {
	for _, r := range results {
		var b strings.Builder
		switch r.State {
		case importSkipped:
			fmt.Fprintf(&b, "%s: skipped: %s\n", r.name(), cli.OneLine(r.Reason))
		case importExists:
			fmt.Fprintf(&b, "%s: exists, and is not overwritten: rename or remove it\n",
				visible.Line(r.File))
		default:
			fmt.Fprintf(&b, "%s: %s\n", visible.Line(r.File), r.State)
		}
		if r.State == importNew {
			for line := range strings.Lines(visible.Text(string(r.text))) {
				b.WriteString("  " + line)
			}
		}
		if err := out.Printf("%s", b.String()); err != nil {
			return err
		}
		for _, note := range r.Notes {
			out.Notef("%s: %s", r.name(), cli.OneLine(note))
		}
	}
	return nil
}
