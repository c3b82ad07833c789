package cli

import (
	"slices"
	"strings"

	"github.com/xrash/smetrics"
)

// words is a command line in parts: the command, its flags and its arguments.
type words struct {
	path    []*Command // below the root
	flags   []flagWord
	args    []string
	help    bool
	version bool
	json    bool
	pending string // in completion, the flag whose value comes next
}

// flagWord is a flag of the command line.
type flagWord struct {
	name  string // its first name
	value string
}

// command is the deepest command, nil for the root.
func (w *words) command() *Command {
	if len(w.path) == 0 {
		return nil
	}
	return w.path[len(w.path)-1]
}

// sortWords reads a command line without the program's name. A flag may stand anywhere behind
// the command that defines it, and a flag of the program anywhere at all; "--" ends flags.
func sortWords(app *App, line []string) (*words, error) {
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
func (w *words) flag(app *App, line []string) (int, error) {
	name, value, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line[0], "-"), "-"), "=")
	def, _ := w.definition(app, name)
	if def == nil {
		return 0, w.unknownFlag(app, line[0])
	}
	long := def.names()[0]
	if !def.takesValue() {
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
			w.flags = append(w.flags, flagWord{long, value})
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
			return 0, Usage("flag --%s: needs a value, found the flag %s (write --%s=%s if that is the value)",
				long, value, long, value)
		}
	}
	w.flags = append(w.flags, flagWord{long, value})
	return used, nil
}

// definition returns the flag of a name and the level of its command, the deepest command's first.
func (w *words) definition(app *App, name string) (Flag, int) {
	for level := len(w.path); level >= 0; level-- {
		for _, f := range w.defined(app, level) {
			if slices.Contains(f.names(), name) {
				return f, level
			}
		}
	}
	return nil, 0
}

// defined returns the flags that a level of the command line defines: 0 is the program.
func (w *words) defined(app *App, level int) []Flag {
	if level == 0 {
		return app.Flags
	}
	return w.path[level-1].Flags
}

func (w *words) subcommands(app *App) []*Command {
	if c := w.command(); c != nil {
		return c.Subcommands
	}
	return app.Commands
}

// check refuses an argument where a command must stand, and arguments of a command without any.
func (w *words) check(app *App) error {
	if len(w.args) == 0 || w.version {
		return nil
	}
	if subs := w.subcommands(app); len(subs) > 0 {
		var names []string
		for _, c := range subs {
			if !c.Hidden {
				names = append(names, c.names()...)
			}
		}
		hint := didYouMean(w.args[0], names)
		if hint == "" && len(w.path) > 0 { // the program has too many commands for one line
			hint = "; there are " + strings.Join(names, ", ")
		}
		return Usage("unknown command %q for %q%s", w.args[0], w.name(app), hint)
	}
	if c := w.command(); !w.help && (c == nil || c.ArgsUsage == "") {
		return Usage("%s: takes no arguments, got %q", strings.TrimPrefix(w.name(app), app.Name+" "), w.args[0])
	}
	return nil
}

func (w *words) unknownFlag(app *App, word string) error {
	var names []string
	lists := [][]Flag{app.Flags}
	for _, c := range w.path {
		lists = append(lists, c.Flags)
	}
	for _, f := range slices.Concat(lists...) {
		for _, name := range f.names() {
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
func (w *words) name(app *App) string {
	names := []string{app.Name}
	for _, c := range w.path {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

func find(commands []*Command, name string) *Command {
	for _, c := range commands {
		if slices.Contains(c.names(), name) {
			return c
		}
	}
	return nil
}

// didYouMean returns "; did you mean X?" for the nearest name that is at most two letters away,
// "" if there is none.
func didYouMean(word string, names []string) string {
	const maxLength = 64 // of a word; the comparison takes as many steps as the product of both lengths
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
