package cli

import (
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

// Flags may come after arguments, so the words of a command line are sorted before the library
// reads them.

// words is a command line in parts: the command, its flags and its arguments.
type words struct {
	path    []*ucli.Command // below the root
	flags   []flagWord
	args    []string
	help    bool
	version bool
	json    bool
	pending string // in completion, the flag whose value comes next
}

// flagWord is a flag of the command line.
type flagWord struct {
	name string // its first name
	word string // --name=value
}

// command is the deepest command, nil for the root.
func (w *words) command() *ucli.Command {
	if len(w.path) == 0 {
		return nil
	}
	return w.path[len(w.path)-1]
}

// line returns the words in the order that the flag package can read: flags before arguments. Each
// flag stands behind the deepest command that defines it, so that a subcommand gets the flags
// before its name.
func (w *words) line(app *ucli.App) []string {
	levels := make([][]string, len(w.path)+1)
	for _, f := range w.flags {
		_, level := w.definition(app, f.name)
		levels[level] = append(levels[level], f.word)
	}
	line := append([]string{app.Name}, levels[0]...)
	for i, c := range w.path {
		line = append(append(line, c.Name), levels[i+1]...)
	}
	if len(w.args) > 0 {
		line = append(append(line, "--"), w.args...)
	}
	return line
}

// sortWords reads a command line without the program's name. A flag may stand anywhere behind
// the command that defines it, and a flag of the program anywhere at all; "--" ends flags.
//
// Version 2 of the CLI library can't do this: it takes everything after the first argument for
// arguments, so that `push hi --level inject` would run silently with the default level.
func sortWords(app *ucli.App, line []string) (*words, error) {
	w := &words{}
	// --json decides how an error is printed, so it is looked for first.
	for _, word := range line {
		if word == "--" {
			break
		}
		w.json = w.json || word == "--json" || word == "--json=true"
	}
	for i := 0; i < len(line); i++ {
		word := line[i]
		switch {
		case word == "--":
			w.args = append(w.args, line[i+1:]...)
			return w, w.check(app)
		case len(word) > 1 && word[0] == '-':
			used, err := w.flag(app, line[i:])
			if err != nil {
				return w, err
			}
			i += used - 1
		case len(w.args) > 0:
			w.args = append(w.args, word)
		case word == helpCommand && len(w.path) == 0:
			w.help = true
		default:
			if c := find(w.subcommands(app), word); c != nil {
				w.path = append(w.path, c)
				continue
			}
			w.args = append(w.args, word)
		}
	}
	return w, w.check(app)
}

// flag reads the flag that line begins with and returns how many words it used.
func (w *words) flag(app *ucli.App, line []string) (int, error) {
	name, value, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line[0], "-"), "-"),
		"=")
	def, _ := w.definition(app, name)
	if def == nil {
		return 0, w.unknownFlag(app, line[0])
	}
	long := def.Names()[0]
	if !takesValue(def) {
		if !hasValue {
			value = "true"
		}
		switch isOn := value == "true"; {
		case !isOn && value != "false":
			return 0, Usage("flag --%s: takes no value but true or false, got %q", long, value)
		case long == helpFlag:
			w.help = isOn
		case long == versionFlag:
			w.version = isOn
		default:
			w.flags = append(w.flags, flagWord{long, "--" + long + "=" + value})
		}
		return 1, nil
	}
	used := 1
	if !hasValue {
		if len(line) == 1 {
			w.pending = long
			return 0, Usage("flag --%s: needs a value", long)
		}
		value, used = line[1], 2
		other, _ := w.definition(app, strings.TrimLeft(value, "-"))
		if len(value) > 1 && value[0] == '-' && other != nil {
			return 0,
				Usage(
					"flag --%s: needs a value, found the flag %s (write --%s=%s if that "+
						"is the value)",
					long, value, long, value)
		}
	}
	w.flags = append(w.flags, flagWord{long, "--" + long + "=" + value})
	return used, nil
}

// definition returns the flag of a name and the level of its command, the deepest command's first.
func (w *words) definition(app *ucli.App, name string) (ucli.Flag, int) {
	for level := len(w.path); level >= 0; level-- {
		flags := app.Flags
		if level > 0 {
			flags = w.path[level-1].Flags
		}
		for _, f := range flags {
			if slices.Contains(f.Names(), name) {
				return f, level
			}
		}
	}
	return nil, 0
}

func (w *words) subcommands(app *ucli.App) []*ucli.Command {
	if c := w.command(); c != nil {
		return c.Subcommands
	}
	return app.Commands
}

// check refuses an argument where a command must stand, and arguments of a command without any.
func (w *words) check(app *ucli.App) error {
	if len(w.args) == 0 || w.version {
		return nil
	}
	if subs := w.subcommands(app); len(subs) > 0 {
		var names []string
		for _, c := range subs {
			if !c.Hidden {
				names = append(names, c.Names()...)
			}
		}
		hint := didYouMean(w.args[0], names)
		if hint == "" && len(w.path) > 0 { // the program has too many commands for one line
			hint = "; there are " + strings.Join(names, ", ")
		}
		return Usage("unknown command %q for %q%s", w.args[0], w.name(app), hint)
	}
	if c := w.command(); !w.help && (c == nil || c.ArgsUsage == "") {
		return Usage("%s: takes no arguments, got %q",
			strings.TrimPrefix(w.name(app), app.Name+" "), w.args[0])
	}
	return nil
}

func (w *words) unknownFlag(app *ucli.App, word string) error {
	var names []string
	lists := [][]ucli.Flag{app.Flags}
	for _, c := range w.path {
		lists = append(lists, c.Flags)
	}
	for _, f := range slices.Concat(lists...) {
		for _, name := range f.Names() {
			if len(name) > 1 {
				names = append(names, "--"+name)
			}
		}
	}
	name, _, _ := strings.Cut(word, "=")
	hint := didYouMean("--"+strings.TrimLeft(name, "-"), names)
	if hint == "" {
		hint = "; put -- before arguments that begin with a dash"
	}
	return Usage("unknown flag %q for %q%s", name, w.name(app), hint)
}

// name is the command as people type it.
func (w *words) name(app *ucli.App) string {
	names := []string{app.Name}
	for _, c := range w.path {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

func find(commands []*ucli.Command, name string) *ucli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

func takesValue(f ucli.Flag) bool {
	d, ok := f.(ucli.DocGenerationFlag)
	return !ok || d.TakesValue()
}

// didYouMean returns "; did you mean X?" for the nearest name that is at most two letters away, or
// "" if no name is near. The library's own SuggestCommand and SuggestFlag suggest a name for any
// word, however far away.
func didYouMean(word string, names []string) string {
	// of a word; the comparison takes as many steps as the product of both lengths
	const maxLength = 64
	nearest, best := "", 3
	for _, name := range names {
		if len(word) > maxLength {
			break
		}
		// A word without a letter of the name is as far away as the name is long.
		if d := smetrics.WagnerFischer(word, name, 1, 1, 1); d < best && d < len(name) {
			nearest, best = name, d
		}
	}
	if nearest == "" {
		return ""
	}
	return "; did you mean " + nearest + "?"
}
