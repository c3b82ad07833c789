package gateway

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// transform is a provider's change of one section of the system prompt. It is immutable. See
// docs/protocol.md, "Transforms".
type transform struct {
	protocol.Transform
	provider *Provider
}

// isCallback reports whether the provider is asked each time.
func (t *transform) isCallback() bool { return t.Action == protocol.TransformCallback }

// protectedSections allow only append, to every provider.
var protectedSections = []string{"safety", "identity"}

// Protected reports whether providers may only append to a section of the system prompt,
// whatever their trust, and the session has the last word in it: safety and identity. See
// docs/protocol.md, "Transforms".
func Protected(section string) bool { return slices.Contains(protectedSections, section) }

// UserPrompt implements [HostCalls]. It joins the startup contexts that no prompt had yet, the
// contexts of all providers in the order of their bindings, and the context of user hooks. It
// waits for providers whose tools were there a moment ago.
// See docs/protocol.md, "Context".
func (s *Session) UserPrompt(ctx context.Context, prompt, source string) string {
	if source == "" || source == SourceUser {
		s.prompts.resumeInjects()
	}
	s.awaitTools(ctx)
	return joinTexts([]string{s.contexts(), s.promptHooks(ctx, prompt, source)})
}

// contexts joins the contexts of the session's providers, and marks startup contexts as
// given.
func (s *Session) contexts() string {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	var startup, ambient []string
	for _, b := range s.bindings {
		if b.offer.startup != "" && !b.record.startupGiven {
			b.record.startupGiven = true
			startup = append(startup, b.offer.startup)
		}
		ambient = append(ambient, b.offer.context)
	}
	return joinTexts(append(startup, ambient...))
}

// Transform implements [HostCalls]. The transforms of a section are applied in the order of
// registration, those with callbacks of several sections at the same time. A provider that
// does not answer within 2 seconds leaves its section as it is. See docs/protocol.md,
// "Transforms".
func (s *Session) Transform(ctx context.Context, sections map[string]string) map[string]string {
	r := s.routes.Load()
	changed := make(map[string]string, len(sections))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, text := range sections {
		list := r.transforms[name]
		if !slices.ContainsFunc(list, (*transform).isCallback) {
			mu.Lock()
			changed[name] = s.apply(ctx, name, text, list)
			mu.Unlock()
			continue
		}
		wg.Go(func() {
			text := s.apply(ctx, name, text, list)
			mu.Lock()
			defer mu.Unlock()
			changed[name] = text
		})
	}
	wg.Wait()
	return changed
}

// PromptVaries implements [HostCalls] for the transforms that the session has now. The
// result may change when a provider binds, unbinds or sends hooks.update.
func (s *Session) PromptVaries() bool {
	for _, list := range s.routes.Load().transforms {
		if slices.ContainsFunc(list, (*transform).isCallback) {
			return true
		}
	}
	return false
}

func (s *Session) apply(ctx context.Context, section, text string, list []*transform) string {
	for _, t := range list {
		switch t.Action {
		case protocol.TransformAppend:
			text = joinTexts([]string{text, *t.Content})
		case protocol.TransformPrepend:
			text = joinTexts([]string{*t.Content, text})
		case protocol.TransformReplace:
			text = *t.Content
		case protocol.TransformCallback:
			text = t.ask(ctx, s, section, text)
		}
	}
	return text
}

// ask sends a transform.request and waits for the new text. Without an answer within
// [protocol.TransformTimeout] the text stays as it is.
func (t *transform) ask(ctx context.Context, s *Session, section, current string) string {
	p := t.provider
	id := newCallID()
	answer := make(chan string, 1)
	p.mu.Lock()
	if p.isGone {
		p.mu.Unlock()
		return current
	}
	p.transformRequests[id] = answer
	p.peer.Send(&protocol.TransformRequest{CallID: id.String(), SessionID: s.id, Section: section,
		Current: current})
	p.mu.Unlock()
	p.peer.Flush()
	timer := time.NewTimer(protocol.TransformTimeout)
	defer timer.Stop()
	select {
	case text, ok := <-answer:
		if ok {
			return text
		}
	case <-timer.C:
		s.note(adminapi.LogWarning, sourceGateway,
			"provider "+p.name+" did not answer in time how section "+section+
				" is to read; it stays as it is")
	case <-ctx.Done():
	}
	p.mu.Lock()
	delete(p.transformRequests, id)
	p.mu.Unlock()
	return current
}

// transformResult handles transform.result. One that answers no request is ignored and
// counted.
func (c *Conn) transformResult(m *protocol.TransformResult) {
	p := c.provider
	id, err := uuid.Parse(m.CallID)
	p.mu.Lock()
	answer := p.transformRequests[id]
	delete(p.transformRequests, id)
	p.mu.Unlock()
	if err != nil || answer == nil {
		c.g.stats.Ignored.Add(1)
		return
	}
	answer <- *m.Content
}

// endTransformRequests ends the transform requests that the provider did not answer: their
// sections stay as they are. Call with p.mu held.
func (p *Provider) endTransformRequests() {
	for id, answer := range p.transformRequests {
		delete(p.transformRequests, id)
		close(answer)
	}
}
