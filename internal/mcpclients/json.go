package mcpclients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"

	"tapgw/configs"
)

// jsonFormat edits JSON with comments and trailing commas. It changes the text only where the entry stands. Where it
// makes a container or a file, it leaves a sign in the white space by which remove knows them:
//
//	a container that it made begins with white space       { "tapgw": …
//	in one that was there and was empty, the entry is first  {"tapgw": …
type jsonFormat struct{}

// jsonDoc is a JSON text, parsed.
type jsonDoc struct {
	text  []byte
	root  *hujson.Value // an object
	style style
}

// style is how a JSON text is laid out.
type style struct {
	newline string // "": all on one line
	unit    string // of indentation
}

var freshStyle = style{newline: "\n", unit: "  "}

// maxNesting bounds objects in objects: the parser recurses.
const maxNesting = 1000

func parseJSON(text []byte) (*jsonDoc, error) {
	if at := tooDeep(text); at >= 0 {
		return nil, faultAt(text, at, "is nested more than %d deep", maxNesting)
	}
	// The parser wants a line end behind a comment on the last line.
	root, err := hujson.Parse(append(bytes.Clone(text), '\n'))
	if err != nil {
		return nil, jsonFault(text, err)
	}
	if root.Value.Kind() != '{' {
		return nil, faultAt(text, root.StartOffset, "must be an object: { … }")
	}
	return &jsonDoc{text: text, root: &root, style: styleOf(text, &root)}, nil
}

// jsonFault translates an error of the parser: "hujson: line 3, column 5: what".
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
	if strings.HasPrefix(f.Message, "invalid literal") { // the rest of it is that text, however long or secret
		f.Message = "invalid string, number or word"
	}
	f.Message = "is not JSON: " + strings.Replace(f.Message, "unexpected EOF", "the file ends too early", 1)
	return f
}

// tooDeep returns the offset at which objects and arrays are nested too deep, or -1.
func tooDeep(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if depth++; depth > maxNesting {
				return i
			}
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '/':
			if i = skipComment(text, i); i < 0 {
				return -1 // the parser says what is wrong
			}
		}
	}
	return -1
}

// skipComment returns the offset of the last byte of the comment that begins at an offset, or -1 if it has no end. A
// slash that begins no comment is returned as it is.
func skipComment(text []byte, at int) int {
	end := ""
	switch {
	case bytes.HasPrefix(text[at:], []byte("//")):
		end = "\n"
	case bytes.HasPrefix(text[at:], []byte("/*")):
		end = "*/"
	default:
		return at
	}
	n := bytes.Index(text[at+2:], []byte(end))
	if n < 0 {
		return -1
	}
	return at + 2 + n + len(end) - 1
}

func styleOf(text []byte, root *hujson.Value) style {
	s := style{unit: freshStyle.unit}
	if !bytes.Contains(text[root.StartOffset:root.EndOffset], []byte("\n")) {
		return s
	}
	s.newline = newlineOf(text)
	if members := object(root).Members; len(members) > 0 {
		if indent, ok := indentBefore(text, members[0].Name.StartOffset); ok && indent != "" {
			s.unit = indent
		}
	}
	return s
}

func newlineOf(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// spaceBefore returns where the white space begins that stands right before an offset.
func spaceBefore(text []byte, at int) int { return len(bytes.TrimRight(text[:at], " \t\r\n")) }

// indentBefore returns the indentation of what stands at an offset, if it begins a line.
func indentBefore(text []byte, at int) (string, bool) {
	space := text[spaceBefore(text, at):at]
	line := bytes.LastIndexByte(space, '\n')
	return string(space[line+1:]), line >= 0
}

func object(v *hujson.Value) *hujson.Object {
	o, _ := v.Value.(*hujson.Object)
	return o
}

// find returns the index of an object's member, -1 if it has none. Two of one name are an error: clients differ in
// which one counts.
func (d *jsonDoc) find(in *hujson.Value, name string) (int, error) {
	found := -1
	for i, m := range object(in).Members {
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

// entry returns the container, nil if there is none, and the index of the entry in it, -1 if it is not there.
func (d *jsonDoc) entry(container string) (in *hujson.Value, index, at int, err error) {
	index, err = d.find(d.root, container)
	if err != nil || index < 0 {
		return nil, index, -1, err
	}
	in = &object(d.root).Members[index].Value
	if object(in) == nil {
		return nil, 0, 0, faultAt(d.text, in.StartOffset, "%s must be an object: { … }", container)
	}
	at, err = d.find(in, entryName)
	return in, index, at, err
}

// put implements [format].
func (jsonFormat) put(text []byte, container string, e entry) ([]byte, error) {
	members := e.all()
	if text == nil {
		return freshJSON(container, freshStyle.value(members, "    ")), nil
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
		return d.insert(d.root, 1, container, func(s style, indent string) string {
			inner := indent + s.unit
			return "{" + s.lineBreak(inner) + member{entryName, members}.json(s, inner) + s.lineBreak(indent) + "}"
		}), nil
	case at < 0:
		return d.insert(in, 2, entryName, func(s style, indent string) string { return s.value(members, indent) }), nil
	}
	return d.update(&object(in).Members[at], e)
}

// freshJSON is the text of a file that has the entry alone.
func freshJSON(container, value string) []byte {
	return fmt.Appendf(nil, "{\n  %q: {\n    %q: %s\n  }\n}\n", container, entryName, value)
}

// lineBreak is what stands before a member: a line end and the indentation, or a space.
func (s style) lineBreak(indent string) string {
	if s.newline == "" {
		return " "
	}
	return s.newline + indent
}

// value is an object of members. Its closing brace is indented by indent.
func (s style) value(members []member, indent string) string {
	inner := indent + s.unit
	var b strings.Builder
	b.WriteString("{")
	for i, m := range members {
		switch {
		case s.newline != "":
			b.WriteString(s.newline + inner)
		case i > 0:
			b.WriteString(" ")
		}
		b.WriteString(m.json(s, inner))
		if i < len(members)-1 {
			b.WriteString(",")
		}
	}
	if s.newline != "" {
		b.WriteString(s.newline + indent)
	}
	return b.String() + "}"
}

// json is a member of an object: its name and its value.
func (m member) json(s style, indent string) string {
	name := string(hujson.String(m.key)) + ": "
	switch v := m.value.(type) {
	case []member:
		return name + s.value(v, indent)
	case []string:
		list := make([]string, len(v))
		for i := range v {
			list[i] = string(hujson.String(v[i]))
		}
		return name + "[" + strings.Join(list, ", ") + "]"
	case string:
		return name + string(hujson.String(v))
	case raw:
		return name + string(v)
	default:
		return fmt.Sprintf("%s%v", name, v)
	}
}

// insert adds a member behind the last one of an object.
func (d *jsonDoc) insert(in *hujson.Value, depth int, name string, value func(style, string) string) []byte {
	o := object(in)
	end := in.EndOffset - 1 // of what stands before the closing brace
	start := end - len(o.AfterExtra)
	at := start + len(bytes.TrimRight(o.AfterExtra, " \t\r\n")) // behind comments
	indent := strings.Repeat(d.style.unit, depth)
	s := d.style
	if n := len(o.Members); n == 0 {
		if at == start { // an empty object: see jsonFormat
			s.newline = ""
			return splice(d.text, at, at, string(hujson.String(name))+": "+value(s, indent))
		}
		return splice(d.text, at, at, s.lineBreak(indent)+string(hujson.String(name))+": "+value(s, indent))
	}
	last := o.Members[len(o.Members)-1]
	if same, ok := indentBefore(d.text, last.Name.StartOffset); ok {
		indent = same
	}
	text := s.lineBreak(indent) + string(hujson.String(name)) + ": " + value(s, indent)
	if last.Value.AfterExtra != nil { // a comma stands there already, and so one goes behind the entry
		return splice(d.text, at, at, text+",")
	}
	result := splice(d.text, at, at, text)
	return splice(result, last.Value.EndOffset, last.Value.EndOffset, ",")
}

func splice(text []byte, from, to int, with string) []byte {
	result := make([]byte, 0, len(text)+len(with))
	return append(append(append(result, text[:from]...), with...), text[to:]...)
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
func (d *jsonDoc) update(m *hujson.ObjectMember, e entry) ([]byte, error) {
	old, extras, err := d.read(&m.Value)
	if err != nil {
		return nil, err
	}
	members, changed, err := e.update(old, extras)
	if err != nil {
		return nil, faultAt(d.text, m.Name.StartOffset, "%v", err)
	}
	if !changed {
		return d.text, nil
	}
	s := d.style
	if !bytes.Contains(d.text[m.Value.StartOffset:m.Value.EndOffset], []byte("\n")) {
		s.newline = ""
	}
	indent, _ := indentBefore(d.text, m.Name.StartOffset)
	return splice(d.text, m.Value.StartOffset, m.Value.EndOffset, s.value(members, indent)), nil
}

// read returns the content of an entry, and its members as they stand in the text.
func (d *jsonDoc) read(v *hujson.Value) (values map[string]any, members []member, err error) {
	if object(v) == nil {
		return nil, nil, faultAt(d.text, v.StartOffset, "the entry %s must be an object: { … }", entryName)
	}
	for _, m := range object(v).Members {
		name, _ := m.Name.Value.(hujson.Literal)
		members = append(members, member{name.String(), raw(d.text[m.Value.StartOffset:m.Value.EndOffset])})
	}
	plain := v.Clone()
	plain.Standardize()
	if err := json.Unmarshal(plain.Pack(), &values); err != nil {
		return nil, nil, faultAt(d.text, v.StartOffset, "the entry %s: %v", entryName, err)
	}
	return values, members, nil
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
	m := &object(in).Members[at]
	old, _, err := d.read(&m.Value)
	if err != nil {
		return nil, err
	}
	if err := checkOurs(old); err != nil {
		return nil, faultAt(text, m.Name.StartOffset, "%v", err)
	}
	if bytes.Equal(text, freshJSON(container, string(text[m.Value.StartOffset:m.Value.EndOffset]))) {
		return nil, nil // nothing else was ever in it
	}
	if d.made(in) {
		return d.cut(d.root, index), nil
	}
	return d.cut(in, at), nil
}

// made reports whether put made an object for the entry, which is alone in it.
func (d *jsonDoc) made(in *hujson.Value) bool {
	o := object(in)
	if len(o.Members) != 1 {
		return false
	}
	name, value := &o.Members[0].Name, &o.Members[0].Value
	begin := in.StartOffset + 1
	return name.StartOffset > begin && spaceBefore(d.text, name.StartOffset) == begin &&
		value.AfterExtra == nil && len(bytes.TrimSpace(o.AfterExtra)) == 0
}

// cut removes a member, with the white space before it and the comma that it no longer needs.
func (d *jsonDoc) cut(in *hujson.Value, i int) []byte {
	o := object(in)
	from := spaceBefore(d.text, o.Members[i].Name.StartOffset)
	to := o.Members[i].Value.EndOffset
	comma := func(i int) int { return o.Members[i].Value.EndOffset + len(o.Members[i].Value.AfterExtra) }
	isLast := i == len(o.Members)-1
	if !isLast || o.Members[i].Value.AfterExtra != nil {
		return splice(d.text, from, comma(i)+1, "")
	}
	result := splice(d.text, from, to, "")
	if i > 0 {
		result = splice(result, comma(i-1), comma(i-1)+1, "")
	}
	return result
}
