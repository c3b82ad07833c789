package protocol

import (
	"encoding/json"
	"slices"
	"strconv"
)

// flat is a schema such as most tools have: an object of plain properties. It accepts most arguments with one scan.
// What it does not accept, the requirements of the schema decide.
type flat struct {
	properties map[string]flatProperty
	required   uint64 // bits of properties
	closed     bool   // additionalProperties: false
}

// flatProperty is a property of one simple type.
type flatProperty struct {
	bit              uint64
	kind             byte // of its JSON: '"', '0' or 't'
	integer          bool
	minimum, maximum *float64 // see shortFloat
	enum             []string
}

// flatten returns nil for a schema with other keywords than flat knows.
func flatten(raw Raw) *flat {
	f := &flat{properties: map[string]flatProperty{}}
	simple := true
	var required []string
	err := Object(raw, func(name string, v Raw) error {
		switch name {
		case "type":
			t, ok := Text(v)
			simple = simple && ok && t == "object"
		case "properties":
			return Object(v, func(name string, v Raw) error {
				p, ok := flattenProperty(v)
				p.bit = 1 << len(f.properties)
				f.properties[name] = p
				simple = simple && ok && len(f.properties) <= 64
				return nil
			})
		case "required":
			simple = simple && json.Unmarshal(v, &required) == nil
		case "additionalProperties":
			f.closed = v.Kind() == 'f'
			simple = simple && (v.Kind() == 'f' || v.Kind() == 't')
		case "title", "description", "$schema", "$comment":
		default:
			simple = false
		}
		return nil
	})
	for _, name := range required {
		p, ok := f.properties[name]
		simple = simple && ok
		f.required |= p.bit
	}
	if err != nil || !simple {
		return nil
	}
	return f
}

func flattenProperty(raw Raw) (p flatProperty, ok bool) {
	ok = true
	err := Object(raw, func(name string, v Raw) error {
		switch name {
		case "type":
			t, _ := Text(v)
			switch t {
			case "string":
				p.kind = '"'
			case "integer", "number":
				p.kind, p.integer = '0', t == "integer"
			case "boolean":
				p.kind = 't'
			default:
				ok = false
			}
		case "minimum":
			p.minimum = shortFloat(v)
			ok = ok && p.minimum != nil
		case "maximum":
			p.maximum = shortFloat(v)
			ok = ok && p.maximum != nil
		case "enum":
			ok = ok && json.Unmarshal(v, &p.enum) == nil
		case "title", "description", "$comment", "default", "examples":
		default:
			ok = false
		}
		return nil
	})
	return p, ok && err == nil && p.kind != 0 && (p.enum == nil || p.kind == '"')
}

// accepts reports whether args surely fit; false says nothing.
func (f *flat) accepts(args Raw) bool {
	var seen uint64
	sure := true
	err := Object(args, func(name string, v Raw) error {
		p, known := f.properties[name]
		seen |= p.bit
		sure = sure && (known && p.accepts(v) || !known && !f.closed)
		return nil
	})
	return err == nil && sure && seen&f.required == f.required
}

func (p *flatProperty) accepts(v Raw) bool {
	kind := byte(v.Kind())
	switch {
	case kind == 'f':
		kind = 't'
	case kind != '0':
	case !p.acceptsNumber(v):
		return false
	}
	if kind != p.kind {
		return false
	}
	if p.enum == nil {
		return true
	}
	s, ok := Text(v)
	return ok && slices.Contains(p.enum, s)
}

// plainDigits is how many digits a float64 keeps of each number.
const plainDigits = 15

// acceptsNumber reports whether a number surely fits. A float64 decides about a number at a bound only if the number is
// short.
func (p *flatProperty) acceptsNumber(v Raw) bool {
	whole := !slices.ContainsFunc(v, func(c byte) bool { return c != '-' && (c < '0' || c > '9') })
	if p.integer && !whole || len(v) > maxDigits ||
		slices.ContainsFunc(v, func(c byte) bool { return c == 'e' || c == 'E' }) {
		return false
	}
	if p.minimum == nil && p.maximum == nil {
		return true
	}
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return false
	}
	exactly := len(v) <= plainDigits
	return (p.minimum == nil || n > *p.minimum || n == *p.minimum && exactly) &&
		(p.maximum == nil || n < *p.maximum || n == *p.maximum &&
			exactly)
}

// shortFloat returns a number of at most plainDigits digits, else nil.
func shortFloat(v Raw) *float64 {
	if v.Kind() != '0' || len(v) > plainDigits || digitsOf(string(v)) > 100 {
		return nil
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return nil
	}
	return &f
}
