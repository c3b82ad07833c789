package protocol

import (
	"net/url"
	"slices"
	"strings"
)

// schemaBase is a schema with an $id, or the root. The references within it are relative to it.
type schemaBase struct {
	*subschema
	uri     *url.URL
	anchors map[string]*subschema
}

// schemaRef is a reference, which is resolved when all schemas are read.
type schemaRef struct {
	from *subschema
	to   string
	base *schemaBase
}

// identify notes the names by which references find a schema, $id and anchors, and returns the base
// of the schemas within it.
func (p *schemaParser) identify(s *subschema, m map[string]any, base *schemaBase) *schemaBase {
	id, ok := m["$id"].(string)
	if name, anchor := strings.CutPrefix(id, "#"); anchor { // draft-07
		base.anchors[name] = s
	} else if ok {
		u, err := url.Parse(id)
		if err != nil {
			p.fault(s.at+"/$id", "must be a URI")
			return base
		}
		base = &schemaBase{s, base.uri.ResolveReference(u), map[string]*subschema{}}
		p.bases[withoutFragment(base.uri)] = base
	}
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		if name, ok := m[keyword].(string); ok {
			base.anchors[name] = s
		}
	}
	return base
}

func withoutFragment(u *url.URL) string {
	v := *u
	v.Fragment, v.RawFragment = "", ""
	return v.String()
}

// resolveRefs finds the schema that each reference refers to.
func (p *schemaParser) resolveRefs() {
	for _, r := range p.refs {
		if r.from.ref = p.resolve(r); r.from.ref == nil {
			p.fault(r.from.at+"/$ref", "%.100q is not in this schema", r.to)
		}
	}
}

// resolve returns the schema that a reference refers to, or nil.
func (p *schemaParser) resolve(r schemaRef) *subschema {
	u, err := url.Parse(r.to)
	if err != nil {
		return nil
	}
	base := r.base
	if !strings.HasPrefix(r.to, "#") {
		if base = p.bases[withoutFragment(base.uri.ResolveReference(u))]; base == nil {
			return nil
		}
	}
	switch {
	case u.Fragment == "":
		return base.subschema
	case u.Fragment[0] == '/':
		return p.schemas[base.at+u.Fragment]
	}
	return base.anchors[u.Fragment]
}

// checkSteps refuses a schema that refers to itself without an end, or that combines too many
// schemas in one place.
func (p *schemaParser) checkSteps() {
	for _, at := range sortedKeys(p.schemas) {
		p.countSteps(p.schemas[at])
	}
}

// countSteps counts the schemas that check one value from this one on. In steps is 0 before, and -1
// while it counts.
func (p *schemaParser) countSteps(s *subschema) int {
	switch steps := p.steps[s]; {
	case s == nil || p.err != nil:
		return 0
	case steps > 0:
		return steps
	case steps < 0:
		p.fault(s.at, "refers to itself without an end")
		return 0
	}
	p.steps[s] = -1
	steps := 1
	next := slices.Concat([]*subschema{s.ref, s.not, s.condition, s.then, s.orElse},
		s.allOf, s.anyOf, s.oneOf)
	for _, name := range sortedKeys(s.dependentSchemas) {
		next = append(next, s.dependentSchemas[name])
	}
	for _, s := range next {
		steps += p.countSteps(s)
	}
	if steps > maxSchemaSteps {
		p.fault(s.at, "too many schemas are combined here: more than %d for one value",
			maxSchemaSteps)
	}
	p.steps[s] = steps
	return steps
}
