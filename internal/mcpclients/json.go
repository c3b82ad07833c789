package mcpclients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"tapgw/configs"
)

// jsonFormat edits JSON with comments and trailing commas. All bytes outside of its changes stay
// the same. White space tells remove whether put has made the container or the file:
//
//	a container that put made begins with white space       { "tapgw": …
//	an empty container that existed begins with the entry   {"tapgw": …
type jsonFormat struct{}

// jsonDoc is a JSON text, parsed.
type jsonDoc struct {
	text    []byte
	root    hujson.Value // an object
	newline string       // "": all on one line
	unit    string       // of indentation
}

const freshUnit = "  "

// maxNesting bounds objects in objects: the parser recurses.
const maxNesting = 100_000

func parseJSON(text []byte) (*jsonDoc, error) {
	depth := 0
	for i, c := range text {
		switch c {
		case '{', '[':
			if depth++; depth > maxNesting {
				return nil, faultAt(text, i, "is nested more than %d deep", maxNesting)
			}
		case '}', ']':
			depth--
		}
	}
	// The parser wants a line end behind a comment on the last line.
	root, err := hujson.Parse(append(bytes.Clone(text), '\n'))
	if err != nil {
		return nil, jsonFault(text, err)
	}
	if root.Value.Kind() != '{' {
		return nil, faultAt(text, root.StartOffset, "must be an object: { … }")
	}
	d := &jsonDoc{text: text, root: root, unit: freshUnit}
	if bytes.Contains(text[root.StartOffset:root.EndOffset], []byte("\n")) {
		d.newline = newlineOf(text)
	}
	if members := object(&root).Members; len(members) > 0 {
		if indent := indentOf(members[0].Name.BeforeExtra); indent != "" {
			d.unit = indent
		}
	}
	return d, nil
}

// jsonFault translates an error of the parser: "hujson: line 3, column 5: fault".
func jsonFault(text []byte, err error) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return faultAt(text, 0, "is empty: write {} into it, or remove it")
	}
	f := configs.Fault{Line: 1, Column: 1, Message: err.Error()}
	if parts := strings.SplitN(f.Message, ": ", 3); len(parts) == 3 {
		if _, err := fmt.Sscanf(parts[1], "line %d, column %d", &f.Line, &f.Column); err == nil {
			f.Message = parts[2]
		}
	}
	// the rest of it is that text, however long or secret
	if strings.HasPrefix(f.Message, "invalid literal") {
		f.Message = "invalid string, number or word"
	}
	f.Message = "is not JSON: " + strings.Replace(f.Message, "unexpected EOF",
		"the file ends too early", 1)
	return f
}

func newlineOf(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// indentOf returns the indentation of a member that begins a line, by the text before it.
func indentOf(before hujson.Extra) string {
	space := before[len(trimmed(before)):]
	if line := bytes.LastIndexByte(space, '\n'); line >= 0 {
		return string(space[line+1:])
	}
	return ""
}

// trimmed returns a text without the white space at its end, so that appending to it copies it.
func trimmed(e hujson.Extra) hujson.Extra {
	n := len(bytes.TrimRight(e, " \t\r\n"))
	return e[:n:n]
}

func isBlank(e hujson.Extra) bool { return len(trimmed(e)) == 0 }

func object(v *hujson.Value) *hujson.Object {
	o, _ := v.Value.(*hujson.Object)
	return o
}

// find returns the index of an object's member, -1 if there is no such member. Two members of one
// name are an error: clients differ in which one counts.
func (d *jsonDoc) find(in *hujson.Object, name string) (int, error) {
	found := -1
	for i, m := range in.Members {
		if lit, ok := m.Name.Value.(hujson.Literal); !ok || lit.String() != name {
			continue
		}
		if found >= 0 {
			return 0, faultAt(d.text, m.Name.StartOffset, "has %q twice: remove one of them", name)
		}
		found = i
	}
	return found, nil
}

// entry returns the container, which may be nil, with its index, and the index of the entry in it,
// -1 if the entry is missing.
func (d *jsonDoc) entry(container string) (in *hujson.Object, index, at int, err error) {
	root := object(&d.root)
	index, err = d.find(root, container)
	if err != nil || index < 0 {
		return nil, index, -1, err
	}
	if in = object(&root.Members[index].Value); in == nil {
		at := root.Members[index].Value.StartOffset
		return nil, 0, 0, faultAt(d.text, at, "%s must be an object: { … }", container)
	}
	at, err = d.find(in, entryName)
	return in, index, at, err
}

// pack returns the text of the document.
func (d *jsonDoc) pack() []byte { return bytes.TrimSuffix(d.root.Pack(), []byte("\n")) }

// put implements [format].
func (jsonFormat) put(text []byte, container string, e entry) ([]byte, error) {
	entry := members{{entryName, members(e.all())}}
	if text == nil {
		data, err := json.MarshalIndent(members{{container, entry}}, "", freshUnit)
		return append(data, '\n'), err
	}
	d, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	in, _, at, err := d.entry(container)
	switch {
	case err != nil:
		return nil, err
	case in == nil:
		d.insert(object(&d.root), 1, container, entry)
	case at < 0:
		d.insert(in, 2, entryName, members(e.all()))
	default:
		if err := d.update(&in.Members[at], e); err != nil {
			return nil, err
		}
	}
	return d.pack(), nil
}

// MarshalJSON implements [json.Marshaler]: the members in their order.
func (list members) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, m := range list {
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%c%s:%s", "{,"[min(i, 1)], string(hujson.String(m.key)), value)
	}
	if len(list) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// value makes the value of a member: on one line, or with further lines that are indented by more
// than indent.
func (d *jsonDoc) value(v members, indent string, onOneLine bool) hujson.ValueTrimmed {
	newline, unit := d.newline, d.unit
	if onOneLine {
		newline, indent, unit = " ", "", ""
	}
	data, err := json.MarshalIndent(v, indent, unit)
	parsed, parseErr := hujson.Parse(bytes.ReplaceAll(data, []byte("\n"), []byte(newline)))
	if err != nil || parseErr != nil {
		panic(fmt.Sprint("an entry is no JSON: ", err, parseErr)) // its parts were parsed before
	}
	for v := range parsed.All() {
		if list, ok := v.Value.(*hujson.Array); ok { // stays on one line
			for i := range list.Elements {
				list.Elements[i].BeforeExtra = hujson.Extra(" "[:min(i, 1)])
			}
			list.AfterExtra = nil
		}
	}
	return parsed.Value
}

// insert adds a member behind the last one of an object, and behind the comments there.
func (d *jsonDoc) insert(in *hujson.Object, depth int, name string, v members) {
	indent := strings.Repeat(d.unit, depth)
	m := hujson.ObjectMember{Name: hujson.Value{Value: hujson.String(name)}}
	m.Value.BeforeExtra = hujson.Extra(" ")
	onOneLine := d.newline == ""
	n := len(in.Members)
	if n > 0 {
		last := in.Members[n-1]
		if same := indentOf(last.Name.BeforeExtra); same != "" {
			indent = same
		}
		if last.Value.AfterExtra != nil { // the last member has a comma, so the entry gets one too
			m.Value.AfterExtra = hujson.Extra{}
		}
	}
	if n == 0 && isBlank(in.AfterExtra) { // see jsonFormat
		onOneLine = true
	} else {
		comments := trimmed(in.AfterExtra)
		in.AfterExtra = in.AfterExtra[len(comments):]
		space := " "
		if !onOneLine {
			space = d.newline + indent
		}
		m.Name.BeforeExtra = append(comments, space...)
	}
	m.Value.Value = d.value(v, indent, onOneLine)
	in.Members = append(in.Members, m)
}

// values implements [format].
func (jsonFormat) values(text []byte) (values map[string]any, err error) {
	d, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	d.root.Standardize()
	decoder := json.NewDecoder(bytes.NewReader(d.root.Pack()))
	decoder.UseNumber()
	return values, decoder.Decode(&values)
}

// update brings the value of an entry up to date.
func (d *jsonDoc) update(m *hujson.ObjectMember, e entry) error {
	old, extras, err := d.read(&m.Value)
	if err != nil {
		return err
	}
	list, changed, err := e.update(old, extras)
	if err != nil {
		return faultAt(d.text, m.Name.StartOffset, "%v", err)
	}
	if changed {
		onOneLine := !bytes.Contains(d.text[m.Value.StartOffset:m.Value.EndOffset], []byte("\n"))
		m.Value.Value = d.value(list, indentOf(m.Name.BeforeExtra), onOneLine)
	}
	return nil
}

// read returns the content of an entry, and its members in their order.
func (d *jsonDoc) read(v *hujson.Value) (values map[string]any, list members, err error) {
	if object(v) == nil {
		return nil, nil, faultAt(d.text, v.StartOffset, "the entry %s must be an object: { … }",
			entryName)
	}
	plain := v.Clone()
	plain.Standardize()
	if err := json.Unmarshal(plain.Pack(), &values); err != nil {
		return nil, nil, faultAt(d.text, v.StartOffset, "the entry %s: %v", entryName, err)
	}
	for _, m := range object(&plain).Members {
		name, _ := m.Name.Value.(hujson.Literal)
		list = append(list, member{name.String(), json.RawMessage(m.Value.Pack())})
	}
	return values, list, nil
}

// remove implements [format].
func (jsonFormat) remove(text []byte, container string) ([]byte, error) {
	d, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	in, index, at, err := d.entry(container)
	if err != nil || at < 0 {
		return text, err
	}
	m := &in.Members[at]
	old, _, err := d.read(&m.Value)
	if err != nil {
		return nil, err
	}
	if err := checkOurs(old); err != nil {
		return nil, faultAt(text, m.Name.StartOffset, "%v", err)
	}
	value := text[m.Value.StartOffset:m.Value.EndOffset]
	if bytes.Equal(text, fmt.Appendf(nil, "{\n  %q: {\n    %q: %s\n  }\n}\n", container, entryName,
		value)) {
		return nil, nil // the file was empty before
	}
	space := m.Name.BeforeExtra
	isMade := len(in.Members) == 1 && len(space) > 0 && isBlank(space) &&
		m.Value.AfterExtra == nil && isBlank(in.AfterExtra)
	if isMade {
		cut(object(&d.root), index)
	} else {
		cut(in, at)
	}
	return d.pack(), nil
}

// cut removes a member, with the white space before it and the comma that it no longer needs.
func cut(in *hujson.Object, i int) {
	m := in.Members[i]
	comments := trimmed(m.Name.BeforeExtra)
	in.Members = slices.Delete(in.Members, i, i+1)
	if i < len(in.Members) {
		next := &in.Members[i].Name
		next.BeforeExtra = append(comments, next.BeforeExtra...)
		return
	}
	if i > 0 && m.Value.AfterExtra == nil {
		last := &in.Members[i-1].Value
		comments = slices.Concat(last.AfterExtra, comments)
		last.AfterExtra = nil
	} else if i > 0 { // the last member has a comma if this one had
		last := &in.Members[i-1].Value
		last.AfterExtra = append(hujson.Extra{}, last.AfterExtra...)
	}
	in.AfterExtra = append(comments, in.AfterExtra...)
}
