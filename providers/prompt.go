package providers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"tapgw/internal/protocol"
)

// SetContext replaces the text that is added to every prompt of the user's: in
// all sessions that the provider is bound to, or in these alone. An empty text
// takes it away. It is 8 KiB at most (docs/protocol.md, "Context").
func (p *Provider) SetContext(ctx context.Context, text string, sessions ...string) (revision uint64, err error) {
	return p.changeEach(ctx, sessions, func(session string) *change {
		return &change{what: "setting the context", session: session,
			apply: func(o *offer) error {
				if session != "" {
					o.setOwn(session, func(mine *own) { mine.context = &text })
					return nil
				}
				o.context = text
				for id := range o.own {
					o.setOwn(id, func(mine *own) { mine.context = nil })
				}
				return nil
			},
			message: func(_ *offer, session, id string) protocol.Message {
				return &protocol.ContextUpdate{RequestID: id, SessionID: session, Context: &text}
			},
		}
	})
}

// Section is a part of the system prompt as it is about to be sent.
type Section struct {
	Session string // the id of the session
	Name    string
	Current string // its text, after the changes of providers before this one
}

// transform is a change of a section: a text, or a function that makes it.
type transform struct {
	action  string
	content string
	rewrite func(context.Context, Section) (string, error) // of a callback
}

func (t transform) wire() *protocol.Transform {
	m := &protocol.Transform{Action: t.action}
	if t.action != protocol.TransformCallback {
		m.Content = &t.content
	}
	return m
}

// Append adds a text to the end of a section of the system prompt. A provider
// holds one change of a section; a later one takes its place.
//
// The sections "safety" and "identity" take only this, from anyone (v2,
// "Protected prompt sections").
func (p *Provider) Append(ctx context.Context, section, text string) (revision uint64, err error) {
	return p.transform(ctx, section, &transform{action: protocol.TransformAppend, content: text})
}

// Prepend adds a text to the beginning of a section; see [Provider.Append].
func (p *Provider) Prepend(ctx context.Context, section, text string) (revision uint64, err error) {
	return p.transform(ctx, section, &transform{action: protocol.TransformPrepend, content: text})
}

// Replace puts a text in place of a section; see [Provider.Append].
func (p *Provider) Replace(ctx context.Context, section, text string) (revision uint64, err error) {
	return p.transform(ctx, section, &transform{action: protocol.TransformReplace, content: text})
}

// Transform has a function make a section anew for each prompt; see
// [Provider.Append]. It has two seconds, when its context ends; without an
// answer by then, and if it returns an error or panics, the section stays as it
// is (v2, "Transform rules").
func (p *Provider) Transform(ctx context.Context, section string, rewrite func(ctx context.Context, s Section) (string,
	error)) (revision uint64, err error) {
	return p.transform(ctx, section, &transform{action: protocol.TransformCallback, rewrite: rewrite})
}

// RemoveTransform takes the provider's change of a section away.
func (p *Provider) RemoveTransform(ctx context.Context, section string) (revision uint64, err error) {
	return p.transform(ctx, section, nil)
}

func (p *Provider) transform(ctx context.Context, section string, t *transform) (uint64, error) {
	if section == "" {
		return 0, errors.New("changing a section of the prompt: its name is empty")
	}
	return p.change(ctx, &change{what: "changing section " + section,
		apply: func(o *offer) error {
			if t == nil {
				delete(o.transforms, section)
				return nil
			}
			if o.transforms == nil {
				o.transforms = map[string]transform{}
			}
			o.transforms[section] = *t
			return nil
		},
		message: func(_ *offer, session, id string) protocol.Message {
			m := &protocol.HooksUpdate{RequestID: id, SessionID: session,
				Transforms: map[string]*protocol.Transform{section: nil}}
			if t != nil {
				m.Transforms[section] = t.wire()
			}
			return m
		},
	})
}

// rewrite asks a function of the user's for a section.
func (c *conn) rewrite(m *protocol.TransformRequest) {
	answer := &protocol.TransformResult{CallID: m.CallID, Content: &m.Current}
	t, ok := lookup(c.run.p, func(o *offer) (transform, bool) {
		t := o.transforms[m.Section]
		return t, t.rewrite != nil
	})
	if !ok {
		_ = c.send(answer) // the reader notices
		return
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, protocol.TransformTimeout, &CancelError{ReasonTimeout})
	s := Section{Session: m.SessionID, Name: m.Section, Current: m.Current}
	c.run.wg.Go(func() {
		text, err := m.Current, errors.New("its function ended its goroutine")
		defer func() {
			c.rewritten(ctx, answer, text, err)
			cancel()
		}()
		text, err = t.ask(ctx, s)
	})
}

// rewritten sends what a function made of a section; on error as it was.
func (c *conn) rewritten(ctx context.Context, answer *protocol.TransformResult, text string, err error) {
	if ctx.Err() != nil {
		c.log.Warn("section not made in time", "call", answer.CallID, "cause", context.Cause(ctx))
		return
	}
	current := answer.Content
	if err == nil {
		answer.Content = &text
		if err = c.write(c.ctx, answer); !isTooLarge(err) {
			return
		}
	}
	c.log.Error("section stays as it is", "error", err)
	answer.Content = current
	_ = c.write(c.ctx, answer)
}

func (t transform) ask(ctx context.Context, s Section) (text string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("making section %s: panic: %v\n%s", s.Name, v, debug.Stack())
		}
	}()
	return t.rewrite(ctx, s)
}

// isTooLarge reports whether a write failed for the message's size.
func isTooLarge(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}
