package providers

import (
	"fmt"
	"maps"
	"slices"

	"tapgw/internal/protocol"
)

// offer is what a provider brings into its sessions. It is replaced whole, never
// changed: [offer.clone] is what is changed.
type offer struct {
	tools      []Tool
	rules      []*Rule
	transforms map[string]transform
	context    string
	filters    map[string][]FilterRule // by stream; an empty one takes an older away
	own        map[string]own          // what single sessions have instead
}

// own is what one session has in place of what all have.
type own struct {
	tools   []Tool // nil: what all have
	context *string
}

// clone returns an offer that may be changed; its slices may not.
func (o *offer) clone() *offer {
	c := *o
	c.transforms, c.filters, c.own = maps.Clone(o.transforms), maps.Clone(o.filters), maps.Clone(o.own)
	return &c
}

// toolsIn are the tools that a session has.
func (o *offer) toolsIn(session string) []Tool {
	if tools := o.own[session].tools; tools != nil {
		return tools
	}
	return o.tools
}

// setOwn changes what one session has for itself.
func (o *offer) setOwn(session string, change func(*own)) {
	if o.own == nil {
		o.own = map[string]own{}
	}
	mine := o.own[session]
	change(&mine)
	o.own[session] = mine
}

// changeTools changes the tools of a session, or of all.
func (o *offer) changeTools(session string, change func([]Tool) []Tool) error {
	limited := func(tools []Tool) ([]Tool, error) {
		tools = change(tools)
		if len(tools) > protocol.MaxTools {
			return nil, fmt.Errorf("%d tools are over the limit of %d: use another provider, with a name of its own",
				len(tools), protocol.MaxTools)
		}
		return tools, nil
	}
	var err error
	if session == "" {
		if o.tools, err = limited(o.tools); err != nil {
			return err
		}
	}
	for id, mine := range o.own {
		if session == "" && mine.tools != nil {
			if mine.tools, err = limited(mine.tools); err != nil {
				return err
			}
			o.own[id] = mine
		}
	}
	if session != "" {
		tools, err := limited(o.toolsIn(session))
		if err != nil {
			return err
		}
		o.setOwn(session, func(mine *own) { mine.tools = tools })
	}
	return nil
}

// hasOwnTools reports whether any session has tools of its own.
func (o *offer) hasOwnTools() bool {
	for _, mine := range o.own {
		if mine.tools != nil {
			return true
		}
	}
	return false
}

// hello makes the hello that carries the offer as it is now. From then on link,
// if it is not nil, takes the changes.
func (p *Provider) hello(link *conn) *protocol.Hello {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.offer
	version := protocol.Version
	m := &protocol.Hello{
		Name: p.name, Instance: p.opts.Instance, ProtocolVersion: &version,
		StartupContext: p.opts.StartupContext, Context: &o.context, Tools: wireTools(o.tools),
		// Said even where there are none: what is left out would be restored.
		Hooks:     &protocol.Hooks{},
		Subscribe: slices.AppendSeq([]string{}, maps.Keys(p.heard)),
	}
	if len(o.rules) > 0 {
		m.Hooks.OnPreToolUse = wireRules(o.rules)
	}
	if len(o.transforms) > 0 {
		m.Hooks.Transforms = make(map[string]*protocol.Transform, len(o.transforms))
	}
	for section, t := range o.transforms {
		m.Hooks.Transforms[section] = t.wire()
	}
	slices.Sort(m.Subscribe)
	if limit := p.opts.Concurrency; limit != (Concurrency{}) {
		m.Concurrency = &protocol.Concurrency{Max: &limit.Max, Scope: string(limit.Scope)}
	}
	if link != nil {
		p.link = link
	}
	return m
}

// wireTools writes tools; never nil, because an empty list is said too.
func wireTools(tools []Tool) []protocol.Tool {
	wire := make([]protocol.Tool, len(tools))
	for i, t := range tools {
		wire[i] = t.wire()
	}
	return wire
}

// restores are the changes that a hello cannot carry: they give a session that
// was just joined what it has beyond it. Call with mu held.
func (p *Provider) restores(session string) []*change {
	var list []*change
	for _, stream := range slices.Sorted(maps.Keys(p.offer.filters)) {
		rules := p.offer.filters[stream]
		list = append(list, &change{what: "setting the filter of " + stream, session: session,
			message: func(_ *offer, session, id string) protocol.Message {
				return filterSet(stream, rules, session, id)
			}})
	}
	mine := p.offer.own[session]
	if mine.tools != nil {
		list = append(list, &change{what: "updating the tools", session: session,
			message: func(_ *offer, session, id string) protocol.Message {
				return &protocol.ToolsUpdate{RequestID: id, SessionID: session, Tools: wireTools(mine.tools)}
			}})
	}
	if mine.context != nil {
		list = append(list, &change{what: "setting the context", session: session,
			message: func(_ *offer, session, id string) protocol.Message {
				return &protocol.ContextUpdate{RequestID: id, SessionID: session, Context: mine.context}
			}})
	}
	return list
}

// disown forgets what a session had for itself.
func (p *Provider) disown(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range []**offer{&p.offer, &p.trial} {
		if *o == nil {
			continue
		}
		if _, ok := (*o).own[session]; ok {
			*o = (*o).clone()
			delete((*o).own, session)
		}
	}
}

// lookup finds something in what the gateway may go by: what it has confirmed,
// and what it was told and answers next.
func lookup[T any](p *Provider, find func(*offer) (T, bool)) (T, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v, ok := find(p.offer); ok || p.trial == nil {
		return v, ok
	}
	return find(p.trial)
}
