package protocol

import (
	"encoding/json"
	"errors"
)

// Bounds of the check of one call's arguments. Its time may double with each level of the arguments, where a recursive
// schema combines others. A unit of cost is about 2 ns.
const (
	maxCost      = 64 << 20
	levelCost    = 100 // for each schema around this one
	propertyCost = 40  // for each property that a schema names, in the arguments or not
	listCost     = 4   // for each byte of an enum or a list of names
	maxNested    = 1000
)

// ErrTooCostly is the error of [Schema.Check] for a value whose check could take too long.
var ErrTooCostly = errors.New(
	`cannot be checked: the tool's schema takes too many steps for them; make it simpler, or set "validate": false`)

// measured is the size of a value, in about as many bytes as its JSON has, and that of its parts.
type measured struct {
	size     int
	members  map[string]*measured
	elements []*measured
}

func measure(v any) *measured {
	m := &measured{size: 8}
	switch v := v.(type) {
	case json.Number:
		m.size += digitsOf(v.String())
	case string:
		m.size += len(v)
	case map[string]any:
		m.members = make(map[string]*measured, len(v))
		for name, member := range v {
			part := measure(member)
			m.members[name] = part
			m.size += len(name) + part.size
		}
	case []any:
		m.elements = make([]*measured, len(v))
		for i, element := range v {
			m.elements[i] = measure(element)
			m.size += m.elements[i].size
		}
	}
	return m
}

// checkCost refuses arguments whose check could take too long. It adds up the cost of each step that the check may
// take, whatever the schemas require.
func (n *node) checkCost(args map[string]any) error {
	left := maxCost
	if !n.spend(measure(args), &left, 1) {
		return ErrTooCostly
	}
	return nil
}

// addCost adds what a keyword costs whenever the schema checks a value.
func (n *node) addCost(key string, v any) {
	switch key {
	case "enum", "const", "required", "dependentRequired", "dependencies":
		n.fixedCost += listCost * measure(v).size
	case "properties", "patternProperties", "dependentSchemas":
		if m, ok := v.(map[string]any); ok {
			n.fixedCost += propertyCost * len(m)
		}
	}
}

// spend subtracts the cost of checking v from left. It reports false when that becomes negative, or when depth, the
// number of schemas around, is too much for the stack. A pattern costs its number of instructions for each byte.
func (n *node) spend(v *measured, left *int, depth int) bool {
	*left -= v.size*(1+n.program) + n.fixedCost + depth*levelCost
	if *left < 0 || depth > maxNested {
		return false
	}
	all := func(nodes []*node, v *measured) bool {
		for _, node := range nodes {
			if !node.spend(v, left, depth+1) {
				return false
			}
		}
		return true
	}
	if !all(n.next, v) {
		return false
	}
	for name, member := range v.members {
		*left -= len(name) * n.names
		if p := n.properties[name]; p != nil && !p.spend(member, left, depth+1) {
			return false
		}
		if !all(n.parts, member) {
			return false
		}
	}
	for i, element := range v.elements {
		if i < len(n.tuple) && !n.tuple[i].spend(element, left, depth+1) {
			return false
		}
		if !all(n.parts, element) {
			return false
		}
	}
	return true
}
