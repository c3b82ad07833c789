package protocol

import (
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// requirements is one schema, ready to check values. Numbers are compared as they are written: 19.99 is a multiple of
// 0.01, and 2^53+1 is not 2^53.
type requirements struct {
	at         string // its place in the tool's schema, a JSON pointer
	rejectsAll bool   // the schema is false
	types      []string
	enum       []any
	hasEnum    bool
	constant   any
	hasConst   bool
	bounds     []bound

	minLength, maxLength *int
	pattern              *regexp.Regexp

	ref             *requirements
	ignoresSiblings bool // draft-07 ignores the keywords beside a reference

	allOf, anyOf, oneOf []*requirements
	not                 *requirements
	cond, then, orElse  *requirements

	tuple                    []*requirements
	items                    *requirements // for the items after the tuple
	contains                 *requirements
	minContains, maxContains *int
	minItems, maxItems       *int
	unique                   bool
	unevaluatedItems         *requirements

	members                []memberRequirements
	memberNames            map[string]bool
	patternMembers         []patternRequirements
	additional             *requirements
	propertyNames          *requirements
	unevaluatedMembers     *requirements
	required               []string
	minMembers, maxMembers *int
	dependencies           []dependency
	dependentSchemas       []memberRequirements
	tracksEvaluated        bool // unevaluatedItems or unevaluatedMembers is set
}

type memberRequirements struct {
	name string
	*requirements
}

type patternRequirements struct {
	pattern *regexp.Regexp
	*requirements
}

// dependency names the members that an object needs if it has the member name.
type dependency struct {
	name  string
	needs []string
}

// bound is a keyword that bounds numbers, such as minimum.
type bound struct {
	keyword string
	limit   *big.Rat
	text    string
}

// breaks returns how a number breaks the bound, or "" if it keeps it.
func (b *bound) breaks(n *big.Rat) string {
	if b.keyword == "multipleOf" {
		if new(big.Rat).Quo(n, b.limit).IsInt() {
			return ""
		}
		return "is not a multiple of"
	}
	switch cmp := n.Cmp(b.limit); {
	case b.keyword == "minimum" && cmp < 0:
		return "is less than"
	case b.keyword == "maximum" && cmp > 0:
		return "is greater than"
	case b.keyword == "exclusiveMinimum" && cmp <= 0:
		return "is less than or equal to"
	case b.keyword == "exclusiveMaximum" && cmp >= 0:
		return "is greater than or equal to"
	}
	return ""
}

// buildRequirements builds the requirements of all schemas after inspect has accepted them.
func (in *inspector) buildRequirements() {
	for at, n := range in.nodes {
		n.requirements = &requirements{at: at}
	}
	for _, n := range in.nodes {
		if m, ok := n.schema.(map[string]any); ok {
			in.fill(n, m)
		} else {
			n.requirements.rejectsAll = n.schema == false
		}
		n.schema = nil
	}
}

func (in *inspector) fill(n *node, m map[string]any) {
	r := n.requirements
	if n.ref != "" {
		r.ref, r.ignoresSiblings = in.resolveRef(n).requirements, in.draft07
	}
	r.types = texts(m["type"])
	r.enum, r.hasEnum = m["enum"].([]any)
	r.constant, r.hasConst = m["const"]
	for _, keyword := range []string{"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
		if text, ok := m[keyword].(json.Number); ok {
			if limit, err := exactNumber(text.String()); err == nil {
				r.bounds = append(r.bounds, bound{keyword, limit, text.String()})
			}
		}
	}
	r.minLength, r.maxLength = intOf(m["minLength"]), intOf(m["maxLength"])
	if p, ok := m["pattern"].(string); ok {
		r.pattern = regexp.MustCompile(p)
	}
	r.allOf, r.anyOf, r.oneOf = in.listAt(n, m, "allOf"), in.listAt(n, m, "anyOf"), in.listAt(n, m, "oneOf")
	r.not, r.cond = in.requirementsAt(n, "not"), in.requirementsAt(n, "if")
	r.then, r.orElse = in.requirementsAt(n, "then"), in.requirementsAt(n, "else")
	in.fillItems(n, m)
	in.fillMembers(n, m)
	r.tracksEvaluated = r.unevaluatedItems != nil || r.unevaluatedMembers != nil
}

func (in *inspector) fillItems(n *node, m map[string]any) {
	r := n.requirements
	switch _, list := m["items"].([]any); {
	case !in.draft07:
		r.tuple = in.listAt(n, m, "prefixItems")
		r.items = in.requirementsAt(n, "items") // nil for a list, which only draft-07 has
	case list:
		r.tuple, r.items = in.listAt(n, m, "items"), in.requirementsAt(n, "additionalItems")
	default:
		r.items = in.requirementsAt(n, "items")
	}
	r.contains = in.requirementsAt(n, "contains")
	r.minContains, r.maxContains = intOf(m["minContains"]), intOf(m["maxContains"])
	r.minItems, r.maxItems = intOf(m["minItems"]), intOf(m["maxItems"])
	r.unique = m["uniqueItems"] == true
	r.unevaluatedItems = in.requirementsAt(n, "unevaluatedItems")
}

func (in *inspector) fillMembers(n *node, m map[string]any) {
	r := n.requirements
	r.members = in.namedAt(n, m, "properties")
	r.memberNames = make(map[string]bool, len(r.members))
	for _, p := range r.members {
		r.memberNames[p.name] = true
	}
	for _, p := range in.namedAt(n, m, "patternProperties") {
		r.patternMembers = append(r.patternMembers, patternRequirements{regexp.MustCompile(p.name), p.requirements})
	}
	r.additional, r.propertyNames = in.requirementsAt(n, "additionalProperties"), in.requirementsAt(n, "propertyNames")
	r.unevaluatedMembers = in.requirementsAt(n, "unevaluatedProperties")
	r.required = texts(m["required"])
	r.minMembers, r.maxMembers = intOf(m["minProperties"]), intOf(m["maxProperties"])
	needs := "dependentRequired"
	if in.draft07 {
		needs = "dependencies"
		r.dependentSchemas = in.namedAt(n, m, needs)
	} else {
		r.dependentSchemas = in.namedAt(n, m, "dependentSchemas")
	}
	if lists, ok := m[needs].(map[string]any); ok {
		for name, v := range lists {
			if list, ok := v.([]any); ok {
				r.dependencies = append(r.dependencies, dependency{name, texts(list)})
			}
		}
		slices.SortFunc(r.dependencies, func(a, b dependency) int { return strings.Compare(a.name, b.name) })
	}
}

// requirementsAt returns the requirements of a keyword whose value is a schema, or nil if the schema lacks it.
func (in *inspector) requirementsAt(n *node, keyword string) *requirements {
	if child := in.nodes[n.at+"/"+keyword]; child != nil {
		return child.requirements
	}
	return nil
}

func (in *inspector) listAt(n *node, m map[string]any, keyword string) (list []*requirements) {
	schemas, _ := m[keyword].([]any)
	for i := range schemas {
		list = append(list, in.nodes[n.at+"/"+keyword+"/"+strconv.Itoa(i)].requirements)
	}
	return list
}

// namedAt returns the requirements of a keyword whose value maps names to schemas, sorted by name. It skips values that
// are lists of names.
func (in *inspector) namedAt(n *node, m map[string]any, keyword string) (list []memberRequirements) {
	named, _ := m[keyword].(map[string]any)
	for name := range named {
		if child := in.nodes[n.at+"/"+keyword+"/"+escape(name)]; child != nil {
			list = append(list, memberRequirements{name, child.requirements})
		}
	}
	slices.SortFunc(list, func(a, b memberRequirements) int { return strings.Compare(a.name, b.name) })
	return list
}

// texts returns a string, or the strings of a list.
func texts(v any) (list []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			if s, ok := e.(string); ok {
				list = append(list, s)
			}
		}
	}
	return list
}

func intOf(v any) *int {
	text, ok := v.(json.Number)
	if !ok {
		return nil
	}
	n, err := exactNumber(text.String())
	if err != nil {
		return nil
	}
	i := int(n.Num().Int64())
	return &i
}
