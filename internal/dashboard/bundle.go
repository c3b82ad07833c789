package dashboard

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// entry is the module that the document loads.
const entry = "main"

// The forms in which the page's modules import and export. TestFiles fails on others.
var (
	importing = regexp.MustCompile(`(?m)^import \{([^}]*)\} from "\./([\w-]+)\.js";\n`)
	exporting = regexp.MustCompile(`(?m)^export ((?:async )?(?:function\*?|class|const) (\w+))`)
)

// bundle returns the scripts as they are served: the entry and all modules that it imports are one script, since over a
// slow link each request costs more than a module. It exports these modules by their names, for those that are loaded
// when somebody needs them. Sources are by name without directory and extension.
func bundle(sources map[string]string) (map[string]string, error) {
	b := bundler{sources: sources, state: map[string]string{}}
	if err := b.add(entry); err != nil {
		return nil, err
	}
	all := maps.Clone(sources)
	for name := range b.state {
		delete(all, name)
	}
	for name, text := range all {
		all[name] = b.linkLate(text)
	}
	fmt.Fprintf(&b.out, "export {")
	for _, name := range slices.Sorted(maps.Keys(b.state)) {
		if name != entry {
			fmt.Fprintf(&b.out, " %s as %s,", inner(name), name)
		}
	}
	all[entry] = b.out.String() + " };\n"
	return all, nil
}

// inner is the name of the value that a bundled module exports.
func inner(module string) string { return "module_" + module }

// bundler puts modules behind those that they import.
type bundler struct {
	sources map[string]string
	state   map[string]string // "adding" and "added", by module
	out     strings.Builder
}

func (b *bundler) add(name string) error {
	text, ok := b.sources[name]
	if !ok {
		return fmt.Errorf("dashboard: there is no module %s", name)
	}
	b.state[name] = "adding"
	for _, m := range importing.FindAllStringSubmatch(text, -1) {
		switch b.state[m[2]] {
		case "adding":
			return fmt.Errorf("dashboard: the modules %s and %s import each other", name, m[2])
		case "":
			if err := b.add(m[2]); err != nil {
				return err
			}
		}
	}
	b.state[name] = "added"
	text = importing.ReplaceAllStringFunc(text, taken)
	if name == entry {
		b.out.WriteString(text)
		return nil
	}
	var names []string
	for _, m := range exporting.FindAllStringSubmatch(text, -1) {
		names = append(names, m[2])
	}
	fmt.Fprintf(&b.out, "const %s = (() => {\n%s\nreturn { %s };\n})();\n",
		inner(name), exporting.ReplaceAllString(text, "$1"), strings.Join(names, ", "))
	return nil
}

// linkLate has a module that is loaded later take what is bundled from the bundle.
func (b *bundler) linkLate(text string) string {
	var from []string
	text = importing.ReplaceAllStringFunc(text, func(statement string) string {
		name := importing.FindStringSubmatch(statement)[2]
		if b.state[name] == "" {
			return statement
		}
		from = append(from, name+" as "+inner(name))
		return taken(statement)
	})
	if len(from) == 0 {
		return text
	}
	return fmt.Sprintf("import { %s } from \"./%s.js\";\n%s", strings.Join(from, ", "), entry, text)
}

// taken returns what stands in place of an import of a bundled module.
func taken(statement string) string {
	m := importing.FindStringSubmatch(statement)
	return fmt.Sprintf("const {%s} = %s;\n", strings.ReplaceAll(m[1], " as ", ": "), inner(m[2]))
}
