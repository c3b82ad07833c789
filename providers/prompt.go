package providers

import (
	"context"
	"errors"
	"fmt"

	"tapgw/internal/protocol"
)

// SetContext replaces the text that is added to each prompt of the user, in all sessions or only in
// these. An empty text removes it. More than 8 KiB is the [*Error] PAYLOAD_TOO_LARGE
// (docs/protocol.md, "Context").
func (p *Provider) SetContext(
	ctx context.Context, text string, sessions ...string,
) (revision uint64, err error) {
	return p.changeEach(ctx, sessions, func(session string) *change {
		return &change{what: "setting the context", session: session,
			apply: func(o *offer) error {
				if session != "" {
					o.editSession(session, func(special *sessionOffer) { special.context = &text })
					return nil
				}
				o.context = text
				for id := range o.perSession {
					o.editSession(id, func(special *sessionOffer) { special.context = nil })
				}
				return nil
			},
			message: func(_ *offer, session, id string) protocol.Message {
				return &protocol.ContextUpdate{RequestID: id, SessionID: session, Context: &text}
			},
		}
	})
}

// Section is a section of the system prompt that [Provider.Transform] is asked about.
type Section struct {
	Session string // the id of the session
	Name    string
	Current string // its text, with the changes of earlier providers
}

// transform is a change of a section: a text, or a function that makes the text.
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

// Append adds a text to the end of a section of the system prompt (docs/protocol.md, "Transforms").
// A provider has one change of each section; a later call of Append, [Provider.Prepend],
// [Provider.Replace] or [Provider.Transform] replaces it.
//
// Every provider may append. An external provider needs a grant for the other changes, and no
// provider may make them in the sections "safety" and "identity"; the [*Error] is then
// UNAUTHORIZED.
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

// Transform makes a function write a section anew for each prompt; see [Provider.Append]. The
// function has two seconds, then its context ends. If it takes longer, returns an error or panics,
// the section stays as it is.
func (p *Provider) Transform(ctx context.Context, section string,
	rewrite func(ctx context.Context, s Section) (string,
		error)) (revision uint64, err error) {
	return p.transform(ctx, section, &transform{action: protocol.TransformCallback,
		rewrite: rewrite})
}

// RemoveTransform removes the provider's change of a section; see [Provider.Append].
func (p *Provider) RemoveTransform(
	ctx context.Context, section string,
) (revision uint64, err error) {
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

// handleTransform runs the user's function for a section.
func (c *conn) handleTransform(m *protocol.TransformRequest) {
	answer := &protocol.TransformResult{CallID: m.CallID, Content: &m.Current}
	t, ok := lookup(c.run.p, func(o *offer) (transform, bool) {
		t := o.transforms[m.Section]
		return t, t.rewrite != nil
	})
	if !ok {
		_ = c.send(answer) // the reader notices an error
		return
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, protocol.TransformTimeout,
		&CancelError{ReasonTimeout})
	s := Section{Session: m.SessionID, Name: m.Section, Current: m.Current}
	c.run.wg.Go(func() {
		text, err := m.Current, errors.New("its function ended its goroutine")
		defer func() {
			c.sendSection(ctx, answer, text, err)
			cancel()
		}()
		if p := guard(c.log, "function of section "+s.Name,
			func() { text, err = t.rewrite(ctx, s) }); p != nil {
			err = fmt.Errorf("making section %s: %w", s.Name, p)
		}
	})
}

// sendSection sends the text of a section, or the current text if err is not nil.
func (c *conn) sendSection(
	ctx context.Context, answer *protocol.TransformResult, text string, err error,
) {
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

// isTooLarge reports whether write refused a message because of its size.
func isTooLarge(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}
