package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// App is a program with commands. [Run] runs it.
type App struct {
	Name        string
	Usage       string // one line
	Description string // prose, and behind a line "Examples:" the examples
	ArgsUsage   string
	Flags       []Flag // of all commands
	Commands    []*Command
	Action      ActionFunc // without a command; nil: help is printed

	Reader            io.Reader // stdin, which Run sets, as it does the others
	Writer, ErrWriter io.Writer
}

// Command is a command of an [App], or of another command. It has Subcommands, an Action, or both.
type Command struct {
	Name         string
	Aliases      []string
	Usage        string // one line
	ArgsUsage    string // "" for a command without arguments
	Description  string // as that of App
	Hidden       bool
	Flags        []Flag
	Subcommands  []*Command
	Action       ActionFunc
	BashComplete BashCompleteFunc
}

// ActionFunc does the work of a command.
type ActionFunc func(*Context) error

// BashCompleteFunc prints the candidates for what [Completing] returns, each with [Candidate].
type BashCompleteFunc func(*Context)

func (c *Command) names() []string { return append([]string{c.Name}, c.Aliases...) }

// Flag is a flag of a command. The types of flags are below.
type Flag interface {
	names() []string // the long one first
	isHidden() bool
	takesValue() bool
	text() (usage, defaultValue string)
	// set returns the flag's value for a text; before is its value so far, nil if it has none.
	set(text string, before any) (any, error)
	environ() []string
}

// ValueFlag is a flag with values of a type.
type ValueFlag[T any] struct {
	Name        string
	Aliases     []string
	Usage       string // one line, with the name of the value in backquotes
	Value       T      // the default
	DefaultText string // what help shows in place of Value
	Hidden      bool
	EnvVars     []string // the flag is set if one of these environment variables is
}

// The flags that commands have.
type (
	StringFlag      = ValueFlag[string]
	BoolFlag        = ValueFlag[bool]
	IntFlag         = ValueFlag[int]
	Int64Flag       = ValueFlag[int64]
	UintFlag        = ValueFlag[uint]
	DurationFlag    = ValueFlag[time.Duration]
	StringSliceFlag = ValueFlag[[]string] // given several times, it has several values
)

func (f *ValueFlag[T]) names() []string   { return append([]string{f.Name}, f.Aliases...) }
func (f *ValueFlag[T]) isHidden() bool    { return f.Hidden }
func (f *ValueFlag[T]) environ() []string { return f.EnvVars }

func (f *ValueFlag[T]) takesValue() bool {
	_, isBool := any(f.Value).(bool)
	return !isBool
}

func (f *ValueFlag[T]) text() (usage, defaultValue string) {
	defaultValue = f.DefaultText
	if list, isList := any(f.Value).([]string); defaultValue == "" && (!isList || len(list) > 0) {
		defaultValue = fmt.Sprint(f.Value)
	}
	return f.Usage, defaultValue
}

func (f *ValueFlag[T]) set(text string, before any) (value any, err error) {
	want := "want a whole number"
	switch any(f.Value).(type) {
	case string:
		value = text
	case bool:
		value = text == "true"
	case int:
		var n int64
		n, err = strconv.ParseInt(text, 0, strconv.IntSize)
		value = int(n)
	case int64:
		value, err = strconv.ParseInt(text, 0, 64)
	case uint:
		var n uint64
		n, err = strconv.ParseUint(text, 0, strconv.IntSize)
		value = uint(n)
	case time.Duration:
		value, err = time.ParseDuration(text)
		want = "want a time like 30s or 5m"
	case []string:
		list, _ := before.([]string)
		value = append(list, text)
	}
	if err != nil {
		return nil, Usage("flag --%s: invalid value %q: %s", f.Name, text, want)
	}
	return value, nil
}

// Context is a command that runs: its flags and its arguments. It ends at a signal. No flag of a nil
// Context is set.
type Context struct {
	context.Context

	App     *App
	Command *Command // nil: the app itself

	path   []*Command
	args   []string
	values map[string]any // of the flags that are set, by their first names
}

// context returns the command of a command line. Its error is about a flag's value.
func (w *words) context(ctx context.Context, app *App) (*Context, error) {
	c := &Context{
		Context: ctx, App: app, Command: w.command(), path: w.path, args: w.args, values: map[string]any{},
	}
	for level := range len(w.path) + 1 {
		for _, f := range w.defined(app, level) {
			for _, name := range f.environ() {
				if text := os.Getenv(name); text != "" {
					value, err := f.set(text, nil)
					if err != nil {
						return nil, err
					}
					c.values[f.names()[0]] = value
				}
			}
		}
	}
	given := map[string]any{}
	for _, word := range w.flags {
		f, _ := w.definition(app, word.name)
		value, err := f.set(word.value, given[word.name])
		if err != nil {
			return nil, err
		}
		given[word.name] = value
	}
	maps.Copy(c.values, given)
	return c, nil
}

// run runs the command of a command line.
func (w *words) run(ctx context.Context, app *App) error {
	c, err := w.context(ctx, app)
	switch command := w.command(); {
	case err != nil:
		return err
	case command == nil && app.Action == nil:
		return printHelp(app.Writer, app, &words{})
	case command == nil:
		return app.Action(c)
	case command.Action == nil:
		var names []string
		for _, s := range shown(command.Subcommands) {
			names = append(names, s.Name)
		}
		return Usage("%s: needs a command: %s", w.name(app), strings.Join(names, ", "))
	default:
		return command.Action(c)
	}
}

// flag returns the flag of a name that the command has, nil if it has none.
func (c *Context) flag(name string) Flag {
	if c == nil {
		return nil
	}
	f, _ := (&words{path: c.path}).definition(c.App, name)
	return f
}

// value returns the value of a flag that is set, else its default. The zero value stands for a flag that the command
// does not have.
func value[T any](c *Context, name string) (v T) {
	f := c.flag(name)
	if f == nil {
		return v
	}
	if set, ok := c.values[f.names()[0]].(T); ok {
		return set
	}
	if f, ok := f.(*ValueFlag[T]); ok {
		return f.Value
	}
	return v
}

// String returns the value of a [StringFlag], its default if it is not set.
func (c *Context) String(name string) string { return value[string](c, name) }

// Bool returns the value of a [BoolFlag].
func (c *Context) Bool(name string) bool { return value[bool](c, name) }

// Int returns the value of an [IntFlag], its default if it is not set.
func (c *Context) Int(name string) int { return value[int](c, name) }

// Int64 returns the value of an [Int64Flag], its default if it is not set.
func (c *Context) Int64(name string) int64 { return value[int64](c, name) }

// Uint returns the value of a [UintFlag], its default if it is not set.
func (c *Context) Uint(name string) uint { return value[uint](c, name) }

// Duration returns the value of a [DurationFlag], its default if it is not set.
func (c *Context) Duration(name string) time.Duration { return value[time.Duration](c, name) }

// StringSlice returns the values of a [StringSliceFlag] in the order of the command line.
func (c *Context) StringSlice(name string) []string { return value[[]string](c, name) }

// IsSet reports whether the command line or the environment sets a flag.
func (c *Context) IsSet(name string) bool {
	f := c.flag(name)
	return f != nil && c.values[f.names()[0]] != nil
}

// SetAbove returns the names of the flags that are set and belong to the command above this one.
func (c *Context) SetAbove() (names []string) {
	w := words{path: c.path}
	for name := range c.values {
		if _, level := w.definition(c.App, name); level == len(c.path)-1 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// NArg returns the number of arguments.
func (c *Context) NArg() int { return len(c.args) }

// Args returns the arguments.
func (c *Context) Args() Args { return c.args }

// Args are the arguments of a command.
type Args []string

// Get returns an argument, or "" if there are fewer.
func (a Args) Get(n int) string {
	if n >= len(a) {
		return ""
	}
	return a[n]
}

// First returns the first argument, or "".
func (a Args) First() string { return a.Get(0) }

// Slice returns a copy of the arguments, which is never nil.
func (a Args) Slice() []string { return append([]string{}, a...) }

// flagText is a flag as help and manual pages show it.
type flagText struct {
	names []string // with their dashes, the short one first
	value string   // what stands for its value, "" when it takes none
	usage string   // with the default
}

// describe returns the texts of the flags that are not hidden.
func describe(flags []Flag) []flagText {
	var list []flagText
	for _, f := range flags {
		if f.isHidden() {
			continue
		}
		var text flagText
		usage, def := f.text()
		placeholder, usage := unquote(usage)
		text.usage = usage
		for _, n := range f.names() {
			if len(n) == 1 {
				text.names = append([]string{"-" + n}, text.names...)
			} else {
				text.names = append(text.names, "--"+n)
			}
		}
		if f.takesValue() {
			text.value = placeholder
			if !slices.Contains([]string{"", "0s", "0"}, def) {
				text.usage += " (default: " + def + ")"
			}
		}
		list = append(list, text)
	}
	return list
}
