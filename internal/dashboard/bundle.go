package dashboard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tapgw/internal/lazyregexp"
)

// Names of the served scripts. The document loads entry. Entry loads later when the user opens a
// part of the page that needs it.
const (
	entry = "main"
	later = "later"
	// worker ends the names of modules that run in a worker, each a script of its own.
	worker = "-worker"
)

// The forms in which the page's modules import and export. TestFiles fails on others.
var (
	importing = lazyregexp.New(`(?m)^import \{([^}]*)\} from "\./([\w-]+)\.js";\n`)
	opening   = lazyregexp.New(`\bimport\("\./([\w-]+)\.js"\)`)
	exporting = lazyregexp.New(`(?m)^export ((?:async )?(?:function\*?|class|const) (\w+))`)
	declaring = lazyregexp.New(`(?m)^(?:export )?(?:async )?(?:function\*?|class|const|let) (\w+)`)
)

// bundle returns the scripts as they are served. The entry and all modules that it imports are one
// script, since over a slow link each request costs more than a module. The modules that are loaded
// later are another script, because together they compress to three quarters of their single sizes.
// That script borrows the names that it imports from the entry's. All modules of a script share one
// scope, whose names the minifier makes short: no two of them declare the same name. Sources are by
// name without directory and extension.
func bundle(sources map[string]string) (map[string]string, error) {
	first := newBundler(sources, nil)
	if err := first.add(entry); err != nil {
		return nil, err
	}
	scripts, second := map[string]string{}, newBundler(sources, first)
	var opened []string // exports of the modules that are loaded later
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		for _, m := range opening.FindAllStringSubmatch(sources[name], -1) {
			if first.state[m[1]] != "" {
				return nil, fmt.Errorf("dashboard: %s loads %s later, which is there at first",
					name, m[1])
			}
			for _, e := range exporting.FindAllStringSubmatch(sources[m[1]], -1) {
				opened = append(opened, e[2])
			}
		}
		b := second
		switch {
		case first.state[name] != "" || second.state[name] != "":
			continue
		case strings.HasSuffix(name, worker):
			b = newBundler(sources, nil)
		}
		if err := b.add(name); err != nil {
			return nil, err
		}
		if b != second {
			scripts[name] = fmt.Sprintf("(() => {\n%s})();\n", &b.out)
		}
	}
	slices.Sort(opened)
	lent := strings.Join(slices.Sorted(maps.Keys(second.borrowed)), ", ")
	scripts[entry] = fmt.Sprintf("let $;\n(() => {\n%s$ = [%s];\n})();\nexport { $ };\n",
		&first.out, lent)
	if second.out.Len() > 0 {
		scripts[later] = fmt.Sprintf(
			"import { $ as lent } from \"./%s.js\";\nlet $;\n(() => {\nconst [%s] = lent;\n%s"+
				"$ = { %s };\n})();\nexport { $ };\n", entry, lent, &second.out,
			strings.Join(slices.Compact(opened), ", "))
	}
	return scripts, nil
}

// bundler puts each module after the modules that it imports.
type bundler struct {
	sources  map[string]string
	outside  *bundler          // of the script with the other modules; may be nil
	borrowed map[string]bool   // names that are imported from outside
	state    map[string]string // "adding" and "added", by module
	declared map[string]string // modules by the names that they declare
	out      strings.Builder
}

func newBundler(sources map[string]string, outside *bundler) *bundler {
	return &bundler{
		sources: sources, outside: outside, borrowed: map[string]bool{}, state: map[string]string{},
		declared: map[string]string{},
	}
}

func (b *bundler) add(name string) error {
	text, ok := b.sources[name]
	if !ok {
		return fmt.Errorf("dashboard: there is no module %s", name)
	}
	b.state[name] = "adding"
	var aliases strings.Builder
	for _, m := range importing.FindAllStringSubmatch(text, -1) {
		names, from := m[1], m[2]
		isOutside := b.outside != nil && b.outside.state[from] != ""
		switch {
		case isOutside:
		case b.state[from] == "adding":
			return fmt.Errorf("dashboard: the modules %s and %s import each other", name, from)
		case b.state[from] == "":
			if err := b.add(from); err != nil {
				return err
			}
		}
		for imported := range strings.SplitSeq(names, ",") {
			original, alias, isRenamed := strings.Cut(strings.TrimSpace(imported), " as ")
			if isRenamed {
				fmt.Fprintf(&aliases, "const %s = %s;\n", alias, original)
			}
			if isOutside && original != "" {
				b.borrowed[original] = true
			}
		}
	}
	b.state[name] = "added"
	for _, m := range declaring.FindAllStringSubmatch(text, -1) {
		other, isTaken := b.declared[m[1]]
		if !isTaken && b.outside != nil {
			other, isTaken = b.outside.declared[m[1]]
		}
		if isTaken {
			return fmt.Errorf("dashboard: the modules %s and %s both declare %s", other, name, m[1])
		}
		b.declared[m[1]] = name
	}
	text = importing.ReplaceAllString(text, "")
	text = exporting.ReplaceAllString(text, "$1")
	text = opening.ReplaceAllString(text, fmt.Sprintf(`import("./%s.js").then((m) => m.$$)`, later))
	b.out.WriteString(aliases.String() + text)
	return nil
}
