package gateway

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tapgw/internal/protocol"
)

// offer holds the tools, streams and rules that a provider offers in one binding. It is immutable:
// an update makes a new one, so bindings may share one with the provider.
type offer struct {
	tools      []*tool
	rules      []*rule
	transforms map[string]*transform
	context    string
	startup    string
}

func (o *offer) toolCount() int {
	if o == nil {
		return 0
	}
	return len(o.tools)
}

// newOffer makes the offer of a hello. The error names the field.
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

// inheritOffer fills in the fields that the hello left out from the provider that the
// reconnect token restores. A gate that the hello does not repeat would be open otherwise.
// See docs/protocol.md, "Reconnecting".
func (p *Provider) inheritOffer(other *Provider, m *protocol.Hello, o *offer) {
	if m.Tools == nil {
		for _, t := range other.base.tools {
			o.tools = append(o.tools, p.take(*t))
		}
	}
	if m.Hooks == nil {
		for _, r := range other.base.rules {
			inherited := *r
			inherited.provider = p
			o.rules = append(o.rules, &inherited)
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

// mergeTransforms applies changes to the transforms by section; nil removes one.
func (p *Provider) mergeTransforms(
	old map[string]*transform, changes map[string]*protocol.Transform,
) map[string]*transform {
	merged := map[string]*transform{}
	maps.Copy(merged, old)
	for section, t := range changes {
		if t == nil {
			delete(merged, section)
			continue
		}
		merged[section] = &transform{*t, p}
	}
	return merged
}

// newTools makes the tools of definitions that the provider's file allows.
func (p *Provider) newTools(defs []protocol.Tool) []*tool {
	tools := make([]*tool, 0, len(defs))
	for _, d := range defs {
		if !p.policy.Allows(d.Name) {
			continue
		}
		// The definition shares the memory of the message that it came in.
		d.Parameters = slices.Clone(d.Parameters)
		if d.OutputSchema.Kind() != '{' {
			d.OutputSchema = nil
		}
		d.OutputSchema = slices.Clone(d.OutputSchema)
		t := tool{
			Tool: d, described: describe(&d), called: d.Name, timeout: protocol.DefaultToolTimeout,
			check: d.Validate == nil || *d.Validate,
		}
		t.Name = p.policy.Prefix + d.Name
		if d.Timeout != nil {
			t.timeout = time.Duration(*d.Timeout) * time.Millisecond
		}
		if longest := p.policy.Timeout; longest > 0 {
			t.timeout = min(t.timeout, longest)
		}
		tools = append(tools, p.take(t))
	}
	return tools
}

// mergeTools adds changed to tools, or replaces those of the same names, and drops the
// names in remove.
func mergeTools(tools, changed []*tool, remove []string) []*tool {
	var merged []*tool
	for _, t := range tools {
		isChanged := slices.ContainsFunc(changed, func(u *tool) bool { return u.Name == t.Name })
		if !isChanged && !slices.Contains(remove, t.Name) {
			merged = append(merged, t)
		}
	}
	return append(merged, changed...)
}
