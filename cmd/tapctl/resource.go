package main

import (
	"context"
	"iter"
	"slices"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

// resource is a kind of things that the gateway has, such as its sessions. The commands that list
// the things, and the commands whose first argument names one of them, are made from it.
type resource[T any] struct {
	list    func(*command) ([]T, error)
	columns []string
	// the columns that a table leaves out if they are empty in all rows
	optional []string
	ink      func(text string) cli.Ink // colours the column inked; may be nil
	inked    int
	row      func(T) []any
	empty    func(*command) string // the text that people read if there are no things

	argument string                                        // in usage lines, such as NAME
	find     func(c *command, word string) (string, error) // the id or name that the argument means
	suggest  func(*command)                                // offers candidates for the argument
}

// always makes the empty of a resource from a text.
func always(text string) func(*command) string { return func(*command) string { return text } }

// print lists the things, as JSON or as a table.
func (r *resource[T]) print(c *command) error {
	all, err := r.list(c)
	if err != nil {
		return err
	}
	return r.printRows(c, all)
}

func (r *resource[T]) printRows(c *command, all []T) error {
	return c.out.List(list(all), r.table(all), r.empty(c))
}

func (r *resource[T]) table(all []T) *cli.Table {
	t := &cli.Table{Columns: r.columns, Ink: r.ink, Inked: r.inked}
	for _, v := range all {
		t.Row(r.row(v)...)
	}
	t.DropEmpty(r.optional...)
	return t
}

// listCommand makes the subcommand list, which does the same as the command without a subcommand.
func (r *resource[T]) listCommand(usage, description string, flags ...ucli.Flag) *ucli.Command {
	return &ucli.Command{Name: "list", Aliases: []string{"ls"}, Usage: usage,
		Description: description, Flags: flags, Action: shortAction(0, r.print)}
}

// short completes a subcommand for one thing. It ends as a [shortAction] does.
func (r *resource[T]) short(
	sub *ucli.Command, do func(c *command, name string) error, unless ...string,
) *ucli.Command {
	return r.complete(sub, shortAction(1, r.named(do), unless...))
}

// long completes a subcommand for one thing. It ends as a [longAction] does.
func (r *resource[T]) long(
	sub *ucli.Command, do func(c *command, name string) error,
) *ucli.Command {
	return r.complete(sub, longAction(1, r.named(do)))
}

func (r *resource[T]) complete(sub *ucli.Command, action ucli.ActionFunc) *ucli.Command {
	sub.ArgsUsage, sub.BashComplete, sub.Action = r.argument, completeArgument(r.suggest), action
	return sub
}

// named makes an action that finds the thing that the first argument means.
func (r *resource[T]) named(do func(c *command, name string) error) func(*command) error {
	return func(c *command) error {
		name, err := r.find(c, c.Args().First())
		if err != nil {
			return err
		}
		return do(c, name)
	}
}

// given makes the find function of a resource whose names the gateway resolves: it only requires
// the argument. Its error calls the argument label and names the command lister.
func given(label, lister string) func(*command, string) (string, error) {
	return func(c *command, word string) (string, error) {
		if word == "" {
			return "", cli.Usage("%s %s: needs %s; tapctl %[1]s lists them", lister, c.Command.Name,
				label)
		}
		return word, nil
	}
}

// suggest offers the candidates of a list, each once. It skips a thing whose word is empty. If the
// list fails, it offers no candidates.
func suggest[T any](
	c *command, list func(context.Context) ([]T, error), candidate func(T) (word, about string),
) {
	all, err := list(c.ctx)
	if err != nil {
		return
	}
	var offered []string
	for _, v := range all {
		if word, about := candidate(v); word != "" && !slices.Contains(offered, word) {
			offered = append(offered, word)
			cli.Candidate(c.Context, word, about)
		}
	}
}

// follow shows each thing that a stream brings, until the stream ends or the user presses Ctrl-C.
func follow[T any](c *command, stream iter.Seq2[T, error], show func(T) error) error {
	for v, err := range stream {
		if err != nil {
			return ignoreInterrupt(c, err)
		}
		if err := show(v); err != nil {
			return err
		}
	}
	return nil
}

// line prints a line of a stream: v with --json, else the text.
func (c *command) line(v any, text string) error {
	if c.out.JSON {
		return c.out.Line(v)
	}
	return c.out.Printf("%s\n", text)
}

// doneTo reports that an action on a thing with an id was done.
func (c *command) doneTo(id, what string) error {
	return c.out.Done(map[string]string{"id": id}, "%s %s", what, id)
}

// list returns an empty list for nil, so that JSON has an array and not null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
