package mcpclients

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"tapgw/configs"
	"tapgw/internal/lazyregexp"
)

// tomlFormat edits TOML. The entry is a table with a header of its own, after all others. The line
// ends around it tell remove how the text was before put:
//
//	blank line, table, line end: the text ended with a line end
//	blank line, table:           it ended without one
//	table, at the beginning:     it was empty
type tomlFormat struct{}

// tomlDoc is a TOML text, parsed.
type tomlDoc struct {
	text     []byte
	values   map[string]any
	sections []configs.Section // of the entry
	old      map[string]any    // the entry, or nil
}

func parseTOML(text []byte, container string) (*tomlDoc, error) {
	values, sections, faults := configs.Sections("", text)
	if len(faults) > 0 {
		return nil, faults[0]
	}
	d := &tomlDoc{text: text, values: values}
	all, has := values[container]
	servers, ok := all.(map[string]any)
	if has && !ok {
		return nil, d.fault(container, "%s must be a table: [%s.NAME]", container, container)
	}
	// The library accepts tables inside an inline table. TOML does not, nor do clients.
	for _, p := range sections[0].Pairs {
		if slices.Equal(p.Key, []string{container}) {
			return nil, faultAt(
				text,
				p.Start,
				"%s is an inline table: write its entries as tables with headers, [%s.NAME]",
				container,
				container,
			)
		}
	}
	path := []string{container, entryName}
	for _, s := range sections {
		if len(s.Path) >= 2 && slices.Equal(s.Path[:2], path) {
			d.sections = append(d.sections, s)
		}
	}
	entry, has := servers[entryName]
	if d.old, ok = entry.(map[string]any); has &&
		(!ok || len(d.sections) == 0 || len(d.sections[0].Path) != 2) {
		return nil, d.fault(entryName,
			"write the entry %s as a table with a header, or remove it: [%s.%s]", entryName,
			container, entryName)
	}
	return d, nil
}

// fault is a mistake of the first place that has a word.
func (d *tomlDoc) fault(word, format string, args ...any) error {
	return faultAt(d.text, max(0, bytes.Index(d.text, []byte(word))), format, args...)
}

// put implements [format].
func (tomlFormat) put(text []byte, container string, e entry) ([]byte, error) {
	if text == nil {
		return []byte(table(container, e.all(), "\n") + "\n"), nil
	}
	d, err := parseTOML(text, container)
	if err != nil {
		return nil, err
	}
	if d.old != nil {
		return d.update(container, e)
	}
	newline := newlineOf(text)
	block := table(container, e.all(), newline)
	switch {
	case len(text) == 0:
	case bytes.HasSuffix(text, []byte("\n")):
		block = newline + block + newline
	default:
		block = newline + newline + block
	}
	result := slices.Concat(text, []byte(block))
	if _, _, faults := configs.Sections("", result); len(faults) > 0 {
		return nil, d.fault(
			container,
			"%s has no room for a table: write its entries as tables with headers, [%s.NAME]",
			container,
			container,
		)
	}
	return result, nil
}

// table is a table of members, without a line end behind it.
func table(container string, list members, newline string) string {
	lines := []string{"[" + container + "." + entryName + "]"}
	for _, m := range list {
		lines = append(lines, m.toml())
	}
	return strings.Join(lines, newline)
}

var bareKey = lazyregexp.New(`^[A-Za-z0-9_-]+$`)

// toml is a pair of a table.
func (m member) toml() string {
	if v, ok := m.value.(rawPair); ok {
		return string(v)
	}
	key := m.key
	if !bareKey.MatchString(key) {
		key = tomlString(key)
	}
	return key + " = " + tomlValue(m.value)
}

func tomlValue(v any) string {
	switch v := v.(type) {
	case members:
		pairs := make([]string, len(v))
		for i := range v {
			pairs[i] = v[i].toml()
		}
		return "{ " + strings.Join(pairs, ", ") + " }"
	case []string:
		list := make([]string, len(v))
		for i := range v {
			list[i] = tomlString(v[i])
		}
		return "[" + strings.Join(list, ", ") + "]"
	case bool:
		if v {
			return "true"
		}
		return "false"
	case string:
		return tomlString(v)
	}
	return `""`
}

// tomlString quotes a text. The escapes of JSON are TOML's, but TOML wants one for DEL as well.
func tomlString(s string) string {
	return strings.ReplaceAll(string(hujson.String(s)), "\x7f", `\u007f`)
}

// values implements [format].
func (tomlFormat) values(text []byte) (map[string]any, error) {
	values, _, faults := configs.Sections("", text)
	if len(faults) > 0 {
		return nil, faults[0]
	}
	return values, nil
}

// update brings the entry up to date.
func (d *tomlDoc) update(container string, e entry) ([]byte, error) {
	section := d.sections[0]
	var extras members
	for _, p := range section.Pairs {
		extras = append(extras, member{p.Key[0], rawPair(bytes.TrimSpace(d.text[p.Start:p.End]))})
	}
	list, changed, err := e.update(d.old, extras)
	if err != nil {
		return nil, faultAt(d.text, section.Start, "%v", err)
	}
	if !changed {
		return d.text, nil
	}
	result := d.text
	for _, s := range slices.Backward(d.sections[1:]) {
		if s.Path[2] == "env" { // its variables are in the table now
			result = cutSection(result, s)
		}
	}
	return slices.Concat(
		result[:section.Start], []byte(table(container, list, newlineOf(d.text))),
		result[section.End:],
	), nil
}

// remove implements [format].
func (tomlFormat) remove(text []byte, container string) ([]byte, error) {
	d, err := parseTOML(text, container)
	if err != nil || d.old == nil {
		return text, err
	}
	if err := checkOurs(d.old); err != nil {
		return nil, faultAt(text, d.sections[0].Start, "%v", err)
	}
	isFile := d.sections[0].Start == 0 && bytes.HasSuffix(text, []byte("\n"))
	for _, s := range slices.Backward(d.sections) {
		text = cutSection(text, s)
	}
	if isFile && len(text) == 0 {
		return nil, nil
	}
	return text, nil
}

// cutSection removes the lines of a table, and the line ends that put has added before it.
func cutSection(text []byte, s configs.Section) []byte {
	newline := newlineOf(text[s.Start:s.End])
	from := bytes.LastIndexByte(text[:s.Start], '\n') + 1
	before := text[:from]
	to := len(text)
	if n := bytes.IndexByte(text[s.End:], '\n'); n >= 0 {
		to = s.End + n + 1
		if rest, ok := bytes.CutSuffix(before, []byte(newline)); ok &&
			(len(rest) == 0 || rest[len(rest)-1] == '\n') {
			before = rest
		}
	} else {
		before = bytes.TrimSuffix(bytes.TrimSuffix(before, []byte(newline)), []byte(newline))
	}
	return append(bytes.Clone(before), text[to:]...)
}
