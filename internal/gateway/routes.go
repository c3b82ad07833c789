package gateway

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/internal/protocol"
)

// route is a tool name's way to the providers that have it. It is immutable.
type route struct {
	name       string
	provider   *Provider // that has the tool; one of its instances
	tools      []*tool   // one of each instance; empty for a meta-tool
	merged     bool      // the provider has instances, and target chooses one
	instances  string    // of a meta-tool: the provider whose instances it lists; else ""
	definition Tool
	timeout    time.Duration
}

// owner is the name of the provider that has the tool.
func (r *route) owner() string { return r.definition.Provider }

// ToolProvider implements [HostCalls].
func (s *Session) ToolProvider(tool string) (name, identity string) {
	to := s.routes.Load().find(tool)
	if to == nil {
		return "", ""
	}
	return to.owner(), fmt.Sprintf("%q %q", to.provider.owner, to.provider.name)
}

// takesSameArgs reports whether arguments that were checked for r are good for other too:
// both lead to the same tool first, with or without a target.
func (r *route) takesSameArgs(other *route) bool {
	return r.merged == other.merged && len(r.tools) > 0 && len(other.tools) > 0 &&
		r.tools[0] == other.tools[0]
}

// routes is the table of a session's tools, rules and transforms, in the order of
// registration. It is immutable: each change of a binding makes a new one.
type routes struct {
	list       []*route
	rules      []*rule
	transforms map[string][]*transform // by section
	required   []absence               // required providers that are not bound

	// byName is made at the first search for a tool. While hundreds of providers join hundreds of
	// sessions, nearly all routes are replaced before that, and sessions without calls never need
	// it.
	byName map[string]*route
	index  sync.Once
}

// find returns the route of a tool's name, or nil.
func (r *routes) find(name string) *route {
	r.index.Do(func() {
		r.byName = make(map[string]*route, len(r.list))
		for _, to := range r.list {
			r.byName[to.name] = to
		}
	})
	return r.byName[name]
}

// hasRulesOf reports whether other has the same rules and lacks the same required providers; false
// for nil.
func (r *routes) hasRulesOf(other *routes) bool {
	return r == other ||
		other != nil && slices.Equal(r.rules, other.rules) &&
			slices.Equal(r.required, other.required)
}

// newRoutes makes the routes of a session's bindings. The rules of user hooks come first.
// Sessions share the routes of tools that only one provider has.
func newRoutes(bindings []*binding, userHooks []*rule) *routes {
	n := 0
	for _, b := range bindings {
		n += len(b.offer.tools)
	}
	r := &routes{list: make([]*route, 0, n), rules: slices.Clip(userHooks),
		transforms: map[string][]*transform{}}
	merged := map[string]*route{} // by name, and the meta-tools
	for _, b := range bindings {
		p := b.provider
		for _, t := range b.offer.tools {
			if t.alone != nil {
				r.list = append(r.list, t.alone)
				continue
			}
			to := merged[t.Name]
			if to == nil {
				to = &route{name: t.Name, provider: p, merged: true, timeout: t.timeout}
				merged[t.Name] = to
				r.list = append(r.list, to)
			}
			to.tools = append(to.tools, t)
		}
		if p.instance != "" && merged[metaTool(p.name)] == nil {
			name := metaTool(p.name)
			to := &route{name: name, provider: p, instances: p.name, definition: Tool{
				Name: name, Provider: p.name,
				Description: fmt.Sprintf("List connected %s instances", p.name),
				Parameters:  protocol.Raw(`{"type":"object","properties":{}}`),
			}}
			merged[name] = to
			r.list = append(r.list, to)
		}
		r.rules = append(r.rules, b.offer.rules...)
		for section, t := range b.offer.transforms {
			r.transforms[section] = append(r.transforms[section], t)
		}
	}
	for _, to := range merged {
		if len(to.tools) > 0 {
			to.define()
		}
	}
	return r
}

// define makes the tool's definition for the session, with the parameter target when
// instances share the tool.
func (r *route) define() {
	t := r.tools[0]
	r.definition = Tool{Name: t.Name, Description: t.described, Parameters: t.Parameters,
		Provider: t.provider.name}
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
	description := "Instance ID; the most recently active one when left out. Available: " +
		strings.Join(available, ", ")
	target := append(protocol.AppendText([]byte(`{"type":"string","description":`), description),
		'}')
	r.definition.Parameters = withProperty(t.Parameters, targetParam, target)
}

// choose returns the tool of the instance that target names. For "" it returns the tool of the most
// recently active instance, except that of failed. It returns nil without such a tool.
func (r *route) choose(target string, failed *tool) *tool {
	var best *tool
	for _, t := range r.tools {
		if target != "" {
			if t.provider.instance == target {
				return t
			}
			continue
		}
		hasFailed := failed != nil && t.provider.instance == failed.provider.instance
		if !hasFailed &&
			(best == nil || t.provider.lastActive.Load() > best.provider.lastActive.Load()) {
			best = t
		}
	}
	return best
}
