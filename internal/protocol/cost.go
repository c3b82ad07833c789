package protocol

import (
	"encoding/json"
	"errors"
)

// What the check of one call's arguments may cost at most. It begins anew wherever
// schemas meet, so a recursive one may take it twice as long for each level of the
// arguments.
//
// The unit is about 2 ns.
const (
	maxCost      = 64 << 20
	levelCost    = 100 // for each schema around
	propertyCost = 40  // for each that a schema names, there or not
	listCost     = 4   // for each byte of what an enum or a list of names holds
	maxNested    = 1000
)

var errCostly = errors.New(`cannot be checked: the tool's schema takes too many steps for them; make it simpler, or set "validate": false`)

// measured is a value and about how many bytes of JSON it has.
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

// affordable refuses arguments whose check could take too long: it takes all the
// steps that the check may take, without looking at what the schemas
// say.
func (n *node) affordable(args map[string]any) error {
	left := maxCost
	if !n.spend(measure(args), &left, 1) {
		return errCostly
	}
	return nil
}

// weigh adds what a keyword costs whenever the schema is held against a value.
func (n *node) weigh(key string, v any) {
	switch key {
	case "enum", "const", "required", "dependentRequired", "dependencies":
		n.weight += listCost * measure(v).size
	case "properties", "patternProperties", "dependentSchemas":
		if m, ok := v.(map[string]any); ok {
			n.weight += propertyCost * len(m)
		}
	}
}

// spend reports whether what is left, and the stack, are enough for a value that
// so many schemas are around. A pattern costs each of its instructions for each
// byte.
func (n *node) spend(v *measured, left *int, depth int) bool {
	*left -= v.size*(1+n.program) + n.weight + depth*levelCost
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
