package protocol

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rules makes the rules of all schemas that were inspected, whose shapes are known
// to be right.
func (in *inspector) rules() {
	for at, n := range in.nodes {
		n.rule = &rule{at: at}
	}
	for _, n := range in.nodes {
		if m, ok := n.says.(map[string]any); ok {
			in.fill(n, m)
		} else {
			n.rule.never = n.says == false
		}
		n.says = nil
	}
}

func (in *inspector) fill(n *node, m map[string]any) {
	r := n.rule
	if n.ref != "" {
		r.ref, r.refOnly = in.find(n).rule, in.draft07
	}
	r.types = texts(m["type"])
	r.list, r.listed = m["enum"].([]any)
	r.value, r.fixed = m["const"]
	for _, keyword := range []string{"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
		if text, ok := m[keyword].(json.Number); ok {
			if limit, err := exact(text.String()); err == nil {
				r.bounds = append(r.bounds, bound{keyword, limit, text.String()})
			}
		}
	}
	r.minLength, r.maxLength = counted(m["minLength"]), counted(m["maxLength"])
	if p, ok := m["pattern"].(string); ok {
		r.pattern = regexp.MustCompile(p)
	}
	r.all, r.any, r.one = in.listAt(n, m, "allOf"), in.listAt(n, m, "anyOf"), in.listAt(n, m, "oneOf")
	r.not, r.cond, r.then, r.orElse = in.ruleAt(n, "not"), in.ruleAt(n, "if"), in.ruleAt(n, "then"),
		in.ruleAt(n, "else")
	in.fillItems(n, m)
	in.fillMembers(n, m)
	r.seesChildren = r.restItems != nil || r.restMembers != nil
}

func (in *inspector) fillItems(n *node, m map[string]any) {
	r := n.rule
	switch _, list := m["items"].([]any); {
	case !in.draft07:
		r.tuple = in.listAt(n, m, "prefixItems")
		r.items = in.ruleAt(n, "items") // none for a list, which is draft-07's
	case list:
		r.tuple, r.items = in.listAt(n, m, "items"), in.ruleAt(n, "additionalItems")
	default:
		r.items = in.ruleAt(n, "items")
	}
	r.contains, r.minContains, r.maxContains = in.ruleAt(n, "contains"), counted(m["minContains"]),
		counted(m["maxContains"])
	r.minItems, r.maxItems = counted(m["minItems"]), counted(m["maxItems"])
	r.unique = m["uniqueItems"] == true
	r.restItems = in.ruleAt(n, "unevaluatedItems")
}

func (in *inspector) fillMembers(n *node, m map[string]any) {
	r := n.rule
	r.members = in.namedAt(n, m, "properties")
	r.named = make(map[string]bool, len(r.members))
	for _, p := range r.members {
		r.named[p.name] = true
	}
	for _, p := range in.namedAt(n, m, "patternProperties") {
		r.patterns = append(r.patterns, patternRule{regexp.MustCompile(p.name), p.rule})
	}
	r.others, r.names, r.restMembers = in.ruleAt(n, "additionalProperties"), in.ruleAt(n, "propertyNames"),
		in.ruleAt(n, "unevaluatedProperties")
	r.required = texts(m["required"])
	r.minMembers, r.maxMembers = counted(m["minProperties"]), counted(m["maxProperties"])
	needs := "dependentRequired"
	if in.draft07 {
		needs = "dependencies"
		r.whenPresent = in.namedAt(n, m, needs)
	} else {
		r.whenPresent = in.namedAt(n, m, "dependentSchemas")
	}
	if lists, ok := m[needs].(map[string]any); ok {
		for name, v := range lists {
			if list, ok := v.([]any); ok {
				r.needs = append(r.needs, needRule{name, texts(list)})
			}
		}
		slices.SortFunc(r.needs, func(a, b needRule) int { return strings.Compare(a.name, b.name) })
	}
}

// ruleAt is the rule of a keyword that holds a schema; nil for none.
func (in *inspector) ruleAt(n *node, keyword string) *rule {
	if child := in.nodes[n.at+"/"+keyword]; child != nil {
		return child.rule
	}
	return nil
}

func (in *inspector) listAt(n *node, m map[string]any, keyword string) (rules []*rule) {
	list, _ := m[keyword].([]any)
	for i := range list {
		rules = append(rules, in.nodes[n.at+"/"+keyword+"/"+strconv.Itoa(i)].rule)
	}
	return rules
}

// namedAt are the rules of a keyword that holds schemas by name, by that. Lists of
// names among them are left out.
func (in *inspector) namedAt(n *node, m map[string]any, keyword string) (rules []memberRule) {
	named, _ := m[keyword].(map[string]any)
	for name := range named {
		if child := in.nodes[n.at+"/"+keyword+"/"+escape(name)]; child != nil {
			rules = append(rules, memberRule{name, child.rule})
		}
	}
	slices.SortFunc(rules, func(a, b memberRule) int { return strings.Compare(a.name, b.name) })
	return rules
}

// texts are the strings of one, or of a list.
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

func counted(v any) *int {
	text, ok := v.(json.Number)
	if !ok {
		return nil
	}
	n, err := exact(text.String())
	if err != nil {
		return nil
	}
	i := int(n.Num().Int64())
	return &i
}
