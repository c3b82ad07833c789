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

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/lazyregexp"
)

// sectionNames are the sections of the runtime's system message. The runtime asks for all of them
// whenever it makes the message: once, and again when its sources have changed.
var sectionNames = []string{
	sdk.SectionPreamble, sdk.SectionIdentity, sdk.SectionTone, sdk.SectionToolEfficiency,
	sdk.SectionEnvironmentContext, sdk.SectionCodeChangeRules, sdk.SectionGuidelines,
	sdk.SectionSafety, sdk.SectionToolInstructions, sdk.SectionCustomInstructions,
	sdk.SectionRuntimeInstructions,
	sdk.SectionLastInstructions,
}

// repeatNotice introduces the repeated identity and safety sections at the end of a changed
// message.
const repeatNotice = "What follows was said above, and holds whatever was added since."

// emptyLines matches runs of line breaks that the runtime shortens to one empty line in its own
// sections.
var emptyLines = lazyregexp.New(`\n{3,}`)

// sections holds the texts of the system message by section.
type sections struct {
	mu         sync.Mutex               // guards the fields below
	original   map[string]string        // by section, as the runtime wrote them last
	answers    map[string]sectionAnswer // the providers' changes, until the runtime asks
	hasChanges bool                     // a provider changed one
	hasAnswers bool                     // the runtime has a message with the providers' changes
	hasWarned  bool
}

// sectionAnswer is a section's text from the providers, and the original that it was made from.
type sectionAnswer struct{ original, text string }

// systemMessage lets providers change every section, unless the user's own text replaces them all.
func (s *session) systemMessage() *sdk.SystemMessageConfig {
	custom := s.baseConfig.SystemMessage
	if s.replacesSystemMessage() {
		return custom
	}
	overrides := make(map[string]sdk.SectionOverride, len(sectionNames))
	for _, name := range sectionNames {
		overrides[name] = sdk.SectionOverride{
			Transform: func(custom string) (string, error) { return s.section(name, custom), nil },
		}
	}
	return &sdk.SystemMessageConfig{Mode: "customize", Sections: overrides, Content: custom.Content}
}

// section returns the text of a section. The runtime asks for one after the other, and a provider
// may take seconds for each. So the first question makes the gateway ask the providers for all
// sections at once, with their last originals.
func (s *session) section(name, original string) string {
	p, attached := &s.sections, s.isConnected()
	p.mu.Lock()
	p.original[name] = original
	if !attached {
		p.mu.Unlock()
		return original
	}
	a, begun := p.answers[name]
	delete(p.answers, name)
	ask := map[string]string{name: original}
	if !begun {
		ask = maps.Clone(p.original)
	}
	p.mu.Unlock()

	if !begun || a.original != original {
		got := s.calls.Transform(s.ctx, ask)
		a = sectionAnswer{original, got[name]}
		delete(got, name)
		p.mu.Lock()
		p.hasAnswers = true
		p.hasChanges = p.hasChanges || a.text != original
		if !begun {
			p.answers = make(map[string]sectionAnswer, len(got))
			p.hasChanges = a.text != original
			for n, text := range got {
				p.answers[n] = sectionAnswer{ask[n], text}
				p.hasChanges = p.hasChanges || text != ask[n]
			}
		}
		p.mu.Unlock()
	}
	return s.guardSection(name, a)
}

// dropAnswers drops the answers that the runtime did not ask for.
func (p *sections) dropAnswers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.answers)
}

// isConnected reports whether the gateway knows the session and the runtime has it. Before that no
// provider is asked, and the message is made again for the first prompt.
func (s *session) isConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return chans.IsClosed(s.ready) && s.conn != nil
}

// guardSection keeps the runtime's statements about identity and safety, and puts them last.
// Providers may only append to these two sections, but other sections follow them; so a changed
// message repeats them at its end. The preamble is the beginning of the identity.
func (s *session) guardSection(name string, a sectionAnswer) string {
	switch name {
	case sdk.SectionPreamble:
		if !strings.HasPrefix(a.text, a.original) {
			s.warnPreamble()
			return a.original
		}
	case sdk.SectionLastInstructions:
		p := &s.sections
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.hasChanges {
			own := emptyLines.ReplaceAllString(p.identity()+"\n\n"+p.original[sdk.SectionSafety],
				"\n\n")
			return strings.Join([]string{a.text, repeatNotice, own}, "\n\n")
		}
	}
	return a.text
}

// identity returns the runtime's statement of the model's identity, without the two sections inside
// it, which providers may have changed. Call it with mu held.
func (p *sections) identity() string {
	text := p.original[sdk.SectionIdentity]
	for _, inside := range []string{sdk.SectionTone, sdk.SectionToolEfficiency} {
		if own := p.original[inside]; own != "" {
			text = strings.Replace(text, own, "", 1)
		}
	}
	return cmp.Or(text, p.original[sdk.SectionPreamble])
}

// warnPreamble warns once that a provider's change was not made.
func (s *session) warnPreamble() {
	s.sections.mu.Lock()
	warned := s.sections.hasWarned
	s.sections.hasWarned = true
	s.sections.mu.Unlock()
	if !warned {
		s.note(
			adminapi.LogWarning,
			"section preamble is left as it was: it belongs to identity, which providers may "+
				"only append to",
		)
	}
}

// expirePrompt makes the runtime ask for the sections again for the next prompt, if its present
// ones were made for one prompt.
func (s *session) expirePrompt() {
	if s.joined != 0 {
		return // the message is not ours
	}
	s.sections.mu.Lock()
	kept := s.sections.hasAnswers
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
	if err := s.configLock.Lock(s.ctx); err != nil {
		return
	}
	defer s.configLock.Unlock()
	if err := s.resetPrompt(s.ctx, c); err != nil {
		s.log.Warn("the next prompt may read as this one", "error", err)
	}
}

// resetPrompt makes the runtime ask for the sections again before its next request to the model.
// The runtime does that when a setting that the message depends on has changed. Of these, the list
// of excluded tools can change without an effect on the session: the added name belongs to no tool.
// Call it with configLock held.
func (s *session) resetPrompt(ctx context.Context, c *conn) error {
	s.promptResets++
	none := fmt.Sprintf("%s-%d", clientName, s.promptResets)
	s.sections.mu.Lock()
	s.sections.hasAnswers = false
	s.sections.mu.Unlock()
	s.sections.dropAnswers()
	_, err := ask(ctx, c.process, askTimeout,
		func(ctx context.Context) (*rpc.SessionUpdateOptionsResult, error) {
			return c.sdk.RPC.Options.Update(ctx, &rpc.SessionUpdateOptionsParams{
				ExcludedTools: append(slices.Clip(s.baseConfig.ExcludedTools), none),
				Shell:         shellOptions(s.shellFile), // unchanged
			})
		})
	if err != nil {
		return fmt.Errorf("making the runtime forget its system message: %w", err)
	}
	return nil
}
