package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tapgw/internal/protocol"
)

// offer is what a provider brings into a session. It is replaced whole, never
// changed, so a binding may share the provider's own.
type offer struct {
	tools      []*tool
	rules      []*rule
	transforms map[string]*transform
	context    string
	startup    string
}

func (o *offer) count() int {
	if o == nil {
		return 0
	}
	return len(o.tools)
}

// newOffer compiles what a hello brings. The error names the field.
func (p *Provider) newOffer(m *protocol.Hello) (*offer, *protocol.Error) {
	o := &offer{tools: p.newTools(m.Tools), startup: m.StartupContext}
	if m.Context != nil {
		o.context = *m.Context
	}
	if m.Hooks == nil {
		return o, nil
	}
	rules, err := p.compileRules("hello.hooks.", m.Hooks.OnPreToolUse)
	if err != nil {
		return nil, err
	}
	o.rules = rules
	o.transforms = p.mergeTransforms(nil, m.Hooks.Transforms)
	return o, nil
}

// inheritOffer adds to this provider and its offer what the hello left out and another
// had, whose identity it takes. A gate that somebody forgot to repeat would
// otherwise be open.
func (p *Provider) inheritOffer(other *Provider, m *protocol.Hello, o *offer) {
	if m.Tools == nil {
		for _, t := range other.base.tools {
			u := *t
			u.provider = p
			o.tools = append(o.tools, &u)
		}
	}
	if m.Hooks == nil {
		for _, r := range other.base.rules {
			u := *r
			u.provider = p
			o.rules = append(o.rules, &u)
		}
		o.transforms = map[string]*transform{}
		for section, t := range other.base.transforms {
			o.transforms[section] = &transform{t.Transform, p}
		}
	}
	if m.Context == nil {
		o.context = other.base.context
	}
	o.startup = cmp.Or(o.startup, other.base.startup)
	if m.Metadata.Kind() != '{' {
		p.metadata, p.title = other.metadata, other.title
	}
	if m.Subscribe == nil {
		p.subscribed = other.subscribed
	}
	if m.Concurrency == nil {
		p.concurrency = other.concurrency
	}
}

// mergeTransforms merges changes by section; nil takes one away.
func (p *Provider) mergeTransforms(have map[string]*transform, changes map[string]*protocol.Transform) map[string]*transform {
	merged := map[string]*transform{}
	maps.Copy(merged, have)
	for section, t := range changes {
		if t == nil {
			delete(merged, section)
			continue
		}
		merged[section] = &transform{*t, p}
	}
	return merged
}

// route is where the calls of one name go: to a tool, to one of the instances
// that share it, or to the gateway itself for a meta-tool. It is fixed once made.
type route struct {
	name       string
	tools      []*tool // of each instance; none for a meta-tool
	merged     bool    // target chooses among instances
	instances  string  // the provider whose instances a meta-tool lists
	definition Tool
	timeout    time.Duration
}

// owner is the name of the provider that the tool is from.
func (r *route) owner() string { return r.definition.Provider }

// routes is where the tool calls, rules and texts of a session come from, in
// registration order. It is immutable.
type routes struct {
	tools      map[string]*route
	list       []*route
	rules      []*rule
	transforms map[string][]*transform
}

// hasRulesOf reports whether other has the same rules; false for nil.
func (r *routes) hasRulesOf(other *routes) bool {
	return r == other || other != nil && slices.Equal(r.rules, other.rules)
}

// targetParam is the parameter that chooses an instance.
const targetParam = "target"

func metaTool(provider string) string {
	const room = 64 - len("list_") - len("_instances") // what tools' names may have
	return "list_" + strings.ReplaceAll(provider[:min(room, len(provider))], ".", "_") + "_instances"
}

// newRoutes makes the routes of a session's bindings, behind the rules that hold
// in every session.
func newRoutes(bindings []*binding, everywhere []*rule) *routes {
	r := &routes{tools: map[string]*route{}, rules: slices.Clip(everywhere), transforms: map[string][]*transform{}}
	for _, b := range bindings {
		p := b.provider
		for _, t := range b.offer.tools {
			to := r.tools[t.Name]
			if to == nil {
				to = &route{name: t.Name, merged: p.instance != "", timeout: t.timeout}
				r.tools[t.Name] = to
				r.list = append(r.list, to)
			}
			to.tools = append(to.tools, t)
		}
		if name := metaTool(p.name); p.instance != "" && r.tools[name] == nil {
			to := &route{name: name, instances: p.name, definition: Tool{Name: name, Provider: p.name,
				Description: fmt.Sprintf("List connected %s instances", p.name), Parameters: protocol.Raw(`{"type":"object","properties":{}}`)}}
			r.tools[name] = to
			r.list = append(r.list, to)
		}
		r.rules = append(r.rules, b.offer.rules...)
		for section, t := range b.offer.transforms {
			r.transforms[section] = append(r.transforms[section], t)
		}
	}
	for _, to := range r.list {
		if len(to.tools) > 0 {
			to.define()
		}
	}
	return r
}

// define makes the definition that the session sees, with target where
// instances share the tool.
func (r *route) define() {
	t := r.tools[0]
	r.definition = Tool{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Provider: t.provider.name}
	if !r.merged {
		return
	}
	available := make([]string, len(r.tools))
	for i, t := range r.tools {
		available[i] = t.provider.instance
		if title := t.provider.title; title != "" {
			available[i] += " (" + title + ")"
		}
	}
	target := append(protocol.AppendText([]byte(`{"type":"string","description":`),
		"Instance ID; the most recently active one when left out. Available: "+strings.Join(available, ", ")), '}')
	r.definition.Parameters = withProperty(t.Parameters, targetParam, target)
}

// withProperty adds a property to the schema of an object, which it says of it
// then, leaving the rest as it stands.
func withProperty(schema protocol.Raw, name string, property []byte) protocol.Raw {
	member := append(protocol.AppendText(nil, name), ':')
	member = append(member, property...)
	insert := func(object protocol.Raw, member []byte) protocol.Raw {
		empty := true
		_ = protocol.Object(object, func(string, protocol.Raw) error { empty = false; return nil })
		out := append(protocol.Raw{'{'}, member...)
		if !empty {
			out = append(out, ',')
		}
		return append(out, object[1:]...)
	}
	out, found, typed := protocol.Raw{'{'}, false, false
	_ = protocol.Object(schema, func(key string, v protocol.Raw) error {
		typed = typed || key == "type"
		if key == "properties" && v.Kind() == '{' {
			v, found = insert(v, member), true
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(protocol.AppendText(out, key), ':')
		out = append(out, v...)
		return nil
	})
	out = append(out, '}')
	if !found {
		out = insert(out, append([]byte(`"properties":{`), append(member, '}')...))
	}
	if !typed {
		out = insert(out, []byte(`"type":"object"`))
	}
	return out
}

// hasProperty reports whether the schema of an object names a property.
func hasProperty(schema protocol.Raw, name string) bool {
	has := false
	_ = protocol.Object(schema, func(key string, v protocol.Raw) error {
		if key == "properties" && v.Kind() == '{' {
			_ = protocol.Object(v, func(p string, _ protocol.Raw) error {
				has = has || p == name
				return nil
			})
		}
		return nil
	})
	return has
}

// splitTarget splits target from the arguments of a merged tool's call; ok is
// false when it is no text.
func splitTarget(args protocol.Raw) (target string, rest protocol.Raw, ok bool) {
	rest, ok = protocol.Raw{'{'}, true
	_ = protocol.Object(args, func(name string, v protocol.Raw) error {
		if name == targetParam {
			target, ok = protocol.Text(v)
			ok = ok || v.Kind() == 'n'
			return nil
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(protocol.AppendText(rest, name), ':')
		rest = append(rest, v...)
		return nil
	})
	return target, append(rest, '}'), ok
}

// choose finds the tool that a call goes to: of the instance that it names, else
// of the most recently active one that was not tried, whatever it offers by now.
func (r *route) choose(target string, tried *tool) *tool {
	var best *tool
	for _, t := range r.tools {
		if target != "" {
			if t.provider.instance == target {
				return t
			}
			continue
		}
		failed := tried != nil && t.provider.instance == tried.provider.instance
		if !failed && (best == nil || t.provider.lastActive.Load() > best.provider.lastActive.Load()) {
			best = t
		}
	}
	return best
}

// listInstances answers a meta-tool: the instances of a provider as a JSON array. See
// docs/protocol.md, "Instances".
func (s *Session) listInstances(provider string) protocol.Raw {
	type instance struct {
		Instance     string       `json:"instance"`
		Metadata     protocol.Raw `json:"metadata"`
		LastActiveAt time.Time    `json:"lastActiveAt"`
	}
	list := []instance{}
	s.g.mu.Lock()
	for _, b := range s.bindings {
		p := b.provider
		if p.name != provider || p.instance == "" {
			continue
		}
		metadata := p.metadata
		if metadata == nil {
			metadata = protocol.Raw("{}")
		}
		list = append(list, instance{p.instance, metadata, time.Unix(0, p.lastActive.Load()).UTC()})
	}
	s.g.mu.Unlock()
	data, err := json.Marshal(list)
	if err != nil {
		return protocol.Raw("[]")
	}
	return data
}

// conflict reports whether a provider's tools clash with another's in the
// session; leaving are those whose tools are about to go. Call with Gateway.mu held.
func (s *Session) checkTools(p *Provider, tools []*tool, leaving ...*Provider) *protocol.Error {
	clash := func(format string, args ...any) *protocol.Error {
		return &protocol.Error{Code: protocol.CodeToolConflict, SessionID: s.id, Message: fmt.Sprintf(format, args...)}
	}
	if fault := s.checkMetaTool(p, clash, leaving); fault != nil {
		return fault
	}
	for _, t := range tools {
		switch {
		case !protocol.ValidToolName(t.Name):
			return clash("tool %q: with the prefix of its provider's file it has more than 64 characters", t.Name)
		case p.instance == "":
		case hasProperty(t.Parameters, targetParam):
			return clash("tool %q: a parameter named target is the gateway's where a provider has instances; rename it", t.Name)
		case t.Name == metaTool(p.name):
			return clash("tool %q is the gateway's own where a provider has instances; rename it", t.Name)
		}
		for _, b := range s.bindings {
			other := b.provider
			if other == p || slices.Contains(leaving, other) {
				continue
			}
			if other.name != p.name && reserved(t.Name, other.name) {
				return clash("tool %q: list_%s and names that begin with list_%[2]s_ are reserved for provider %[2]q; rename it", t.Name, other.name)
			}
			i := slices.IndexFunc(b.offer.tools, func(u *tool) bool { return u.Name == t.Name })
			if i < 0 {
				if other.instance != "" && t.Name == metaTool(other.name) {
					return clash("tool %q is the gateway's own, for provider %q; rename it", t.Name, other.name)
				}
				continue
			}
			if other.name != p.name || other.instance == "" || p.instance == "" {
				return clash("tool %q is registered by provider %q already; rename it", t.Name, other.name)
			}
			if !sameSchema(b.offer.tools[i].Parameters, t.Parameters) {
				return clash("tool %q: its parameters differ from those of instance %q of the same provider", t.Name, other.instance)
			}
		}
	}
	return nil
}

// checkMetaTool reports whether the meta-tool that a provider's instances bring is
// the name of something in the session. Call with Gateway.mu held.
func (s *Session) checkMetaTool(p *Provider, clash func(string, ...any) *protocol.Error, leaving []*Provider) *protocol.Error {
	if p.instance == "" {
		return nil
	}
	name := metaTool(p.name)
	for _, b := range s.bindings {
		other := b.provider
		if other == p || slices.Contains(leaving, other) {
			continue
		}
		taken := slices.ContainsFunc(b.offer.tools, func(t *tool) bool { return t.Name == name })
		if taken || (other.instance != "" && other.name != p.name && metaTool(other.name) == name) {
			return clash("tool %q, which the gateway makes for instances of %q, exists already, by provider %q", name, p.name, other.name)
		}
	}
	return nil
}

// sameSchema compares schemas whatever the order of their keys.
func sameSchema(a, b protocol.Raw) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := a.Clone(), b.Clone()
	anyText := jsontext.AllowInvalidUTF8(true)
	return x.Canonicalize(anyText) == nil && y.Canonicalize(anyText) == nil && bytes.Equal(x, y)
}

// reserved reports whether a tool's name is kept for the tools that the gateway
// makes for a provider (v2, "Tool name collisions").
func reserved(tool, provider string) bool {
	rest, ok := strings.CutPrefix(tool, "list_"+provider)
	return ok && (rest == "" || rest[0] == '_')
}
