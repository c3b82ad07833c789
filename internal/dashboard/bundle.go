package dashboard

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Scripts as they are served. The document loads entry, which loads later once somebody opens what is in it.
const (
	entry = "main"
	later = "later"
	// worker ends the names of modules that run in a worker, each a script of its own.
	worker = "-worker"
)

// The forms in which the page's modules import and export. TestFiles fails on others.
var (
	importing = regexp.MustCompile(`(?m)^import \{([^}]*)\} from "\./([\w-]+)\.js";\n`)
	opening   = regexp.MustCompile(`\bimport\("\./([\w-]+)\.js"\)`)
	exporting = regexp.MustCompile(`(?m)^export ((?:async )?(?:function\*?|class|const) (\w+))`)
)

// bundle returns the scripts as they are served. The entry and all modules that it imports are one script, since over a
// slow link each request costs more than a module. It exports these modules by their names, for those that are loaded
// when somebody needs them; these are one script too, which compresses to three quarters of what they take alone.
// Sources are by name without directory and extension.
func bundle(sources map[string]string) (map[string]string, error) {
	first := newBundler(sources, nil)
	if err := first.add(entry); err != nil {
		return nil, err
	}
	scripts, second := map[string]string{}, newBundler(sources, first.state)
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		b := second
		switch {
		case first.state[name] != "" || second.state[name] != "":
			continue
		case strings.HasSuffix(name, worker):
			b = newBundler(sources, nil)
			b.main = name
		}
		if err := b.add(name); err != nil {
			return nil, err
		}
		if b != second {
			scripts[name] = b.out.String()
		}
	}
	for _, b := range []*bundler{first, second} {
		if b.out.Len() == 0 {
			continue
		}
		name := entry
		if b == second {
			name = later
		}
		script := b.imports() + b.out.String() + b.exports()
		scripts[name] = opening.ReplaceAllStringFunc(script, func(call string) string {
			module := opening.FindStringSubmatch(call)[1]
			home := later
			if first.state[module] != "" {
				home = entry
			}
			return fmt.Sprintf(`import("./%s.js").then((m) => m[%q])`, home, module)
		})
	}
	return scripts, nil
}

// inner is the name of the value that a bundled module exports, short since the minifier leaves it as it is.
func (b *bundler) inner(module string) string {
	return "$" + strconv.Itoa(slices.Index(slices.Sorted(maps.Keys(b.sources)), module))
}

// bundler puts modules behind those that they import.
type bundler struct {
	sources map[string]string
	outside map[string]string // the modules that the entry's script has
	main    string            // the module that exports nothing
	state   map[string]string // "adding" and "added", by module
	used    map[string]bool   // modules of outside that are imported
	out     strings.Builder
}

func newBundler(sources, outside map[string]string) *bundler {
	return &bundler{
		sources: sources, outside: outside, main: entry, state: map[string]string{}, used: map[string]bool{},
	}
}

func (b *bundler) add(name string) error {
	text, ok := b.sources[name]
	if !ok {
		return fmt.Errorf("dashboard: there is no module %s", name)
	}
	b.state[name] = "adding"
	for _, m := range importing.FindAllStringSubmatch(text, -1) {
		switch {
		case b.outside[m[2]] != "":
			b.used[m[2]] = true
		case b.state[m[2]] == "adding":
			return fmt.Errorf("dashboard: the modules %s and %s import each other", name, m[2])
		case b.state[m[2]] == "":
			if err := b.add(m[2]); err != nil {
				return err
			}
		}
	}
	b.state[name] = "added"
	text = importing.ReplaceAllStringFunc(text, func(statement string) string {
		m := importing.FindStringSubmatch(statement)
		return fmt.Sprintf("const {%s} = %s;\n", strings.ReplaceAll(m[1], " as ", ": "), b.inner(m[2]))
	})
	if name == b.main {
		fmt.Fprintf(&b.out, "(() => {\n%s})();\n", text) // names in a function are made short
		return nil
	}
	var names []string
	for _, m := range exporting.FindAllStringSubmatch(text, -1) {
		names = append(names, m[2])
	}
	fmt.Fprintf(&b.out, "const %s = (() => {\n%s\nreturn { %s };\n})();\n",
		b.inner(name), exporting.ReplaceAllString(text, "$1"), strings.Join(names, ", "))
	return nil
}

// imports is the statement that brings the modules that the entry's script has.
func (b *bundler) imports() string {
	if len(b.used) == 0 {
		return ""
	}
	var names []string
	for _, module := range slices.Sorted(maps.Keys(b.used)) {
		names = append(names, fmt.Sprintf("%q as %s", module, b.inner(module)))
	}
	return fmt.Sprintf("import { %s } from \"./%s.js\";\n", strings.Join(names, ", "), entry)
}

// exports is the statement that gives away the modules of a script by their names.
func (b *bundler) exports() string {
	var names []string
	for _, module := range slices.Sorted(maps.Keys(b.state)) {
		if module != entry {
			names = append(names, fmt.Sprintf("%s as %q", b.inner(module), module))
		}
	}
	return fmt.Sprintf("export { %s };\n", strings.Join(names, ", "))
}
