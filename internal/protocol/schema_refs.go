package protocol

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// identify notes the names by which references find a schema: $id and anchors.
func (in *inspector) identify(n *node, m map[string]any) error {
	id, ok := m["$id"].(string)
	if name, anchor := strings.CutPrefix(id, "#"); anchor { // draft-07
		n.base.anchors[name] = n
	} else if ok {
		u, err := url.Parse(id)
		if err != nil {
			return faultAt(n.at+"/$id", "must be a URI")
		}
		u = n.base.uri.ResolveReference(u)
		n.base, n.uri, n.anchors = n, u, map[string]*node{}
		in.ids[withoutFragment(u)] = n
	}
	for _, key := range []string{"$anchor", "$dynamicAnchor"} {
		if a, ok := m[key].(string); ok {
			n.base.anchors[a] = n
		}
	}
	return nil
}

func withoutFragment(u *url.URL) string {
	v := *u
	v.Fragment, v.RawFragment = "", ""
	return v.String()
}

// resolveRefs finds the schema that each reference refers to.
func (in *inspector) resolveRefs() error {
	for _, at := range slices.Sorted(maps.Keys(in.nodes)) {
		n := in.nodes[at]
		if n.ref == "" {
			continue
		}
		target := in.resolveRef(n)
		if target == nil {
			return faultAt(at+"/$ref", "%.100q is not in this schema", n.ref)
		}
		n.next = append(n.next, target)
	}
	return nil
}

// resolveRef returns the schema that a node's reference refers to, or nil.
func (in *inspector) resolveRef(n *node) *node {
	u, err := url.Parse(n.ref)
	if err != nil {
		return nil
	}
	base := n.base
	if !strings.HasPrefix(n.ref, "#") {
		if base = in.ids[withoutFragment(n.base.uri.ResolveReference(u))]; base == nil {
			return nil
		}
	}
	switch {
	case u.Fragment == "":
		return base
	case u.Fragment[0] == '/':
		return in.nodes[base.at+u.Fragment]
	}
	return base.anchors[u.Fragment]
}

// checkSteps refuses a schema that refers to itself without an end, or that combines too many schemas in one place.
func (in *inspector) checkSteps() error {
	for _, at := range slices.Sorted(maps.Keys(in.nodes)) {
		if err := in.nodes[at].countSteps(); err != nil {
			return err
		}
	}
	return nil
}

// countSteps counts the schemas that check one value from this one on.
func (n *node) countSteps() error {
	switch {
	case n.steps > 0:
		return nil
	case n.steps < 0:
		return faultAt(n.at, "refers to itself without an end")
	}
	n.steps = -1
	steps := 1
	for _, next := range n.next {
		if err := next.countSteps(); err != nil {
			return err
		}
		if steps += next.steps; steps > maxSchemaSteps {
			return faultAt(n.at, "too many schemas are combined here: more than %d for one value", maxSchemaSteps)
		}
	}
	n.steps = steps
	return nil
}
