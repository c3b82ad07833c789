package copilot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/gateway"
	"tapgw/internal/lazyregexp"
)

// sectionNames are the sections of the runtime's system message. It asks for
// all of them whenever it makes the message: once, and again when what it is
// made of has changed.
var sectionNames = []string{
	sdk.SectionPreamble, sdk.SectionIdentity, sdk.SectionTone, sdk.SectionToolEfficiency,
	sdk.SectionEnvironmentContext, sdk.SectionCodeChangeRules, sdk.SectionGuidelines, sdk.SectionSafety,
	sdk.SectionToolInstructions, sdk.SectionCustomInstructions, sdk.SectionRuntimeInstructions, sdk.SectionLastInstructions,
}

// lastWord begins what stands at the end of a message that providers changed.
const lastWord = "What follows was said above, and holds whatever was added since."

// emptyLines is what the runtime makes one empty line of where it wrote a section
// itself.
var emptyLines = lazyregexp.New(`\n{3,}`)

// sections is what is known of the system message.
type sections struct {
	mu      sync.Mutex        // guards the fields that follow
	own     map[string]string // as the runtime wrote them last
	answers map[string]answer // what providers made of them, until the runtime asks
	changed bool              // a provider changed one
	kept    bool              // the runtime has a message with what providers said
	warned  bool
}

// answer is a section as it is to read.
type answer struct{ own, text string }

// systemMessage lets providers change every section, where the user's own text
// does not take the place of all of them.
func (s *session) systemMessage() *sdk.SystemMessageConfig {
	own := s.fixed.SystemMessage
	if s.replaced() {
		return own
	}
	overrides := make(map[string]sdk.SectionOverride, len(sectionNames))
	for _, name := range sectionNames {
		overrides[name] = sdk.SectionOverride{Transform: func(own string) (string, error) { return s.section(name, own), nil }}
	}
	return &sdk.SystemMessageConfig{Mode: "customize", Sections: overrides, Content: own.Content}
}

// section returns how a section is to read. The runtime asks for one after the
// other, and a provider may take seconds for each: so the first that it asks
// for makes us ask for all, as they were last time, side by side.
func (s *session) section(name, own string) string {
	p, attached := &s.sections, s.attached()
	p.mu.Lock()
	p.own[name] = own
	if !attached {
		p.mu.Unlock()
		return own
	}
	a, begun := p.answers[name]
	delete(p.answers, name)
	ask := map[string]string{name: own}
	if !begun {
		ask = maps.Clone(p.own)
	}
	p.mu.Unlock()

	if !begun || a.own != own {
		got := s.calls.Transform(s.ctx, ask)
		a = answer{own, got[name]}
		delete(got, name)
		p.mu.Lock()
		p.kept = true
		p.changed = p.changed || a.text != own
		if !begun {
			p.answers = make(map[string]answer, len(got))
			p.changed = a.text != own
			for n, text := range got {
				p.answers[n] = answer{ask[n], text}
				p.changed = p.changed || text != ask[n]
			}
		}
		p.mu.Unlock()
	}
	return s.guarded(name, a)
}

// forget drops what the runtime did not ask for.
func (p *sections) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.answers)
}

// attached reports whether the gateway knows the session and the runtime has
// it. Before, nobody is asked: the message is made again for the first prompt.
func (s *session) attached() bool {
	select {
	case <-s.ready:
	default:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil
}

// guarded sees to it that the runtime's word on who the model is and on safety
// stays and comes last. Providers may only append to these two sections, but
// others follow them: so a message that was changed ends with what they said.
// The preamble is where the identity begins.
func (s *session) guarded(name string, a answer) string {
	switch name {
	case sdk.SectionPreamble:
		if !strings.HasPrefix(a.text, a.own) {
			s.warnPreamble()
			return a.own
		}
	case sdk.SectionLastInstructions:
		p := &s.sections
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.changed {
			own := emptyLines.ReplaceAllString(p.identity()+"\n\n"+p.own[sdk.SectionSafety], "\n\n")
			return strings.Join([]string{a.text, lastWord, own}, "\n\n")
		}
	}
	return a.text
}

// identity is what the runtime says of who the model is, without the sections
// inside it: providers may have changed those. Call it with mu held.
func (p *sections) identity() string {
	text := p.own[sdk.SectionIdentity]
	for _, inside := range []string{sdk.SectionTone, sdk.SectionToolEfficiency} {
		if own := p.own[inside]; own != "" {
			text = strings.Replace(text, own, "", 1)
		}
	}
	return cmp.Or(text, p.own[sdk.SectionPreamble])
}

// warnPreamble says, once, that a provider's change was not made.
func (s *session) warnPreamble() {
	s.sections.mu.Lock()
	warned := s.sections.warned
	s.sections.warned = true
	s.sections.mu.Unlock()
	if !warned {
		s.note(gateway.LogWarning, "section preamble is left as it was: it belongs to identity, which providers may only append to")
	}
}

// promptSpent makes the runtime ask for the sections anew for the next prompt,
// if what it has was said for one.
func (s *session) promptSpent() {
	s.sections.mu.Lock()
	kept := s.sections.kept
	s.sections.mu.Unlock()
	if !kept || !s.awaitCalls() || !s.calls.PromptVaries() {
		return
	}
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c == nil {
		return
	}
	if err := s.setting.lock(s.ctx); err != nil {
		return
	}
	defer s.setting.unlock()
	if err := s.forgetPrompt(s.ctx, c); err != nil {
		s.log.Warn("the next prompt may read as this one", "error", err)
	}
}

// forgetPrompt makes the runtime ask for the sections anew before its next
// request to the model. It does so when anything is other than it was when it
// made its message. Of all that the message depends on, which tools to leave out
// can be changed without changing the session: there is none of that name. Call
// it with setting held.
func (s *session) forgetPrompt(ctx context.Context, c *conn) error {
	s.forgotten++
	none := fmt.Sprintf("%s-%d", clientName, s.forgotten)
	s.sections.mu.Lock()
	s.sections.kept = false
	s.sections.mu.Unlock()
	s.sections.forget()
	_, err := ask(ctx, c.p, askTimeout, func(ctx context.Context) (*rpc.SessionUpdateOptionsResult, error) {
		return c.sdk.RPC.Options.Update(ctx, &rpc.SessionUpdateOptionsParams{
			ExcludedTools: append(slices.Clip(s.fixed.ExcludedTools), none),
			Shell:         shellOptions(s.shellFile), // said again, it changes nothing
		})
	})
	if err != nil {
		return fmt.Errorf("making the runtime forget its system message: %w", err)
	}
	return nil
}
