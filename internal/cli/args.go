package cli

import (
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"
)

// words is a command line, sorted: which command, which flags at which level,
// which arguments.
type words struct {
	path    []*ucli.Command // below the root
	flags   []flagWord
	args    []string
	help    bool
	version bool
	json    bool
	pending string // the flag that still waits for its value, in completion
}

// flagWord is a flag as it stood.
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

// line writes the words in the order that the flag package can read: flags
// before arguments, each at the deepest command that defines it, so that one
// given to a command holds for its subcommand.
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

// sortWords reads a command line (without the program's name) by the flags that
// the app defines. A flag may stand anywhere behind the command that defines it,
// the root's flags anywhere at all; "--" ends flags.
//
// The flag package stops at the first argument and hands the rest on as
// arguments, so that `push hi --level inject` would run with another level
// than was asked for, in silence.
func sortWords(app *ucli.App, line []string) (*words, error) {
	w := &words{}
	// Known before the first error, so that it can be reported as was asked.
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

// flag reads the flag that line begins with and returns how many words it took.
func (w *words) flag(app *ucli.App, line []string) (int, error) {
	name, value, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line[0], "-"), "-"), "=")
	def, _ := w.definition(app, name)
	if def == nil {
		return 0, w.unknownFlag(app, line[0])
	}
	long := def.Names()[0]
	if !takesValue(def) {
		if !hasValue {
			value = "true"
		}
		switch on := value == "true"; {
		case !on && value != "false":
			return 0, Usage("flag --%s: takes no value but true or false, got %q", long, value)
		case long == helpFlag:
			w.help = on
		case long == versionFlag:
			w.version = on
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
		if other, _ := w.definition(app, strings.TrimLeft(value, "-")); len(value) > 1 && value[0] == '-' && other != nil {
			return 0, Usage("flag --%s: needs a value, found the flag %s (write --%s=%s if that is the value)", long, value, long, value)
		}
	}
	w.flags = append(w.flags, flagWord{long, "--" + long + "=" + value})
	return used, nil
}

// definition finds a flag, the deepest command's first, and its level.
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

// check refuses arguments where none can stand.
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
		if hint == "" && len(w.path) > 0 { // the program's own are too many for a line
			hint = "; there are " + strings.Join(names, ", ")
		}
		return Usage("unknown command %q for %q%s", w.args[0], w.name(app), hint)
	}
	if c := w.command(); !w.help && (c == nil || c.ArgsUsage == "") {
		return Usage("%s: takes no arguments, got %q", strings.TrimPrefix(w.name(app), app.Name+" "), w.args[0])
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

// didYouMean returns "; did you mean X?" for the nearest of the names, "" when
// none is near.
func didYouMean(word string, names []string) string {
	best, nearest := 3, ""
	for _, name := range names {
		d := distance(word, name)
		if d >= len([]rune(name)) {
			continue // nothing in common
		}
		if d < best {
			best, nearest = d, name
		}
	}
	if nearest == "" {
		return ""
	}
	return "; did you mean " + nearest + "?"
}

// distance is the number of letters to add, drop, change or swap with a neighbour.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	if len(s) > 64 || len(t) > 64 {
		return len(s) + len(t)
	}
	before, last := make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(s); i++ {
		row := make([]int, len(t)+1)
		row[0] = i
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(t)]
}
