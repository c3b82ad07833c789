package providers

import (
	"fmt"
	"maps"
	"slices"

	"tapgw/internal/protocol"
)

// offer is all that a provider offers its sessions. An offer is immutable: a change makes a new one
// with [offer.clone].
type offer struct {
	tools      []Tool
	rules      []*Rule
	transforms map[string]transform
	context    string
	filters    map[string][]FilterRule // by stream; an empty one removes an older one
	perSession map[string]sessionOffer // the offers of single sessions, by id
}

// sessionOffer is the part of an offer that differs for one session.
type sessionOffer struct {
	tools   []Tool  // nil: the tools of all
	context *string // nil: the context of all
}

// clone returns a copy whose maps may be changed. Its slices are shared.
func (o *offer) clone() *offer {
	c := *o
	c.transforms, c.filters, c.perSession = maps.Clone(o.transforms), maps.Clone(o.filters),
		maps.Clone(o.perSession)
	return &c
}

// toolsIn returns the tools of a session.
func (o *offer) toolsIn(session string) []Tool {
	if tools := o.perSession[session].tools; tools != nil {
		return tools
	}
	return o.tools
}

// editSession changes the part of the offer that differs for one session.
func (o *offer) editSession(session string, edit func(*sessionOffer)) {
	if o.perSession == nil {
		o.perSession = map[string]sessionOffer{}
	}
	special := o.perSession[session]
	edit(&special)
	o.perSession[session] = special
}

// changeTools changes the tools of one session, or of all ("").
func (o *offer) changeTools(session string, edit func([]Tool) []Tool) error {
	limited := func(tools []Tool) ([]Tool, error) {
		tools = edit(tools)
		if len(tools) > protocol.MaxTools {
			return nil,
				fmt.Errorf(
					"%d tools are over the limit of %d: use another provider, with a "+
						"name of its own",
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
	for id, special := range o.perSession {
		if session == "" && special.tools != nil {
			if special.tools, err = limited(special.tools); err != nil {
				return err
			}
			o.perSession[id] = special
		}
	}
	if session != "" {
		tools, err := limited(o.toolsIn(session))
		if err != nil {
			return err
		}
		o.editSession(session, func(special *sessionOffer) { special.tools = tools })
	}
	return nil
}

// hasSessionTools reports whether any session has tools of its own.
func (o *offer) hasSessionTools() bool {
	for _, special := range o.perSession {
		if special.tools != nil {
			return true
		}
	}
	return false
}

// hello makes the hello with the offer as it is now. From then on, link sends the changes if it is
// not nil.
func (p *Provider) hello(link *conn) *protocol.Hello {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.offer
	version := protocol.Version
	m := &protocol.Hello{
		Name: p.name, Instance: p.opts.Instance, ProtocolVersion: &version,
		StartupContext: p.opts.StartupContext, Context: &o.context, Tools: wireTools(o.tools),
		// Present even if empty, because after a reconnect the gateway restores missing fields.
		Hooks:     &protocol.Hooks{},
		Subscribe: slices.AppendSeq([]string{}, maps.Keys(p.listeners)),
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
	if p.opts.OnQuestion != nil {
		m.Subscribe = append(m.Subscribe, protocol.EventQuestionAsked, protocol.EventQuestionEnded)
	}
	slices.Sort(m.Subscribe)
	if limit := p.opts.Concurrency; limit != (Concurrency{}) {
		m.Concurrency = &protocol.Concurrency{Max: &limit.Max, Scope: string(limit.Scope)}
	}
	if link != nil {
		p.changeConn = link
	}
	return m
}

// wireTools makes the wire form of tools. It is never nil, because a missing list means something
// else than an empty one.
func wireTools(tools []Tool) []protocol.Tool {
	wire := make([]protocol.Tool, len(tools))
	for i, t := range tools {
		wire[i] = t.wire()
	}
	return wire
}

// sessionChanges returns the changes that give a session that was just joined the parts that a
// hello can't contain: filters, and its own part of the offer. The caller holds mu.
func (p *Provider) sessionChanges(session string) []*change {
	var list []*change
	for _, stream := range slices.Sorted(maps.Keys(p.offer.filters)) {
		rules := p.offer.filters[stream]
		list = append(list, &change{what: "setting the filter of " + stream, session: session,
			message: func(_ *offer, session, id string) protocol.Message {
				return filterSet(stream, rules, session, id)
			}})
	}
	special := p.offer.perSession[session]
	if special.tools != nil {
		list = append(list, &change{what: "updating the tools", session: session,
			message: func(_ *offer, session, id string) protocol.Message {
				return &protocol.ToolsUpdate{RequestID: id, SessionID: session,
					Tools: wireTools(special.tools)}
			}})
	}
	if special.context != nil {
		list = append(list, &change{what: "setting the context", session: session,
			message: func(_ *offer, session, id string) protocol.Message {
				return &protocol.ContextUpdate{RequestID: id, SessionID: session,
					Context: special.context}
			}})
	}
	return list
}

// forgetSession removes a session's own part of the offer, after the session has ended.
func (p *Provider) forgetSession(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range []**offer{&p.offer, &p.sent} {
		if *o == nil {
			continue
		}
		if _, ok := (*o).perSession[session]; ok {
			*o = (*o).clone()
			delete((*o).perSession, session)
		}
	}
}

// lookup searches the offers that the gateway may be using: the one that it has confirmed, then the
// one that was sent and not confirmed yet.
func lookup[T any](p *Provider, find func(*offer) (T, bool)) (T, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v, ok := find(p.offer); ok || p.sent == nil {
		return v, ok
	}
	return find(p.sent)
}
