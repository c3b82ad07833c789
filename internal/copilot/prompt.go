package copilot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/spans"
)

// Prompts on their way to the runtime, and the context that providers add to them.

// sentPrompt is a prompt from the moment it is given to the runtime until the runtime reports that
// it began. While there is one, the session is not reported idle.
type sentPrompt struct {
	id           string // the runtime's id; "" until it answered
	prompt       string // the gateway's id
	text         string // as the runtime got it
	shown        string // as the runtime's event repeats it
	source       string
	contextAsked bool // the providers were asked for context
	hasBegun     bool // the runtime reported it
	isDropped    bool // the runtime will not begin it
}

// Send implements [gateway.Host].
func (s *session) Send(ctx context.Context, p gateway.Prompt) error {
	if err := s.sendLock.Lock(ctx); err != nil {
		return err
	}
	defer s.sendLock.Unlock()
	c, err := s.waitConn(ctx)
	if err != nil {
		return err
	}
	if !s.awaitCalls() {
		return errEnded
	}
	if s.needsHooks() {
		if err := s.EnableHooks(ctx); err != nil {
			return fmt.Errorf(
				"the prompt is not given to the Copilot runtime, for hooks and gates could "+
					"not be asked: %w", err,
			)
		}
	}
	attachments, err := s.attachments(p.Attachments)
	if err != nil {
		return err
	}
	sent := &sentPrompt{prompt: p.ID, text: p.Text, shown: cmp.Or(p.Shown, p.Text),
		source: p.Source}
	// The runtime has the same names of modes as the admin API.
	msg := sdk.MessageOptions{
		Prompt: p.Text, Mode: adminapi.ModeEnqueue, Source: messageSource(p.Source),
		Attachments: attachments, RequestHeaders: p.Headers, DisplayPrompt: p.Shown,
	}
	if name, ok := strings.CutPrefix(p.Source, gateway.SourceProvider); ok {
		// The model does not see the source, so the text says that it does not come from the user.
		// People see the source in the timeline.
		msg.DisplayPrompt = p.Text
		msg.Prompt = "[from provider " + name + "]\n" + p.Text
		sent.text = msg.Prompt
		if s.joined != 0 {
			// A terminal shows no prompt that has a source, so its person sees the same text as the
			// model.
			msg.DisplayPrompt, msg.Source, sent.shown = "", "", sent.text
		}
	}
	if p.Mode == adminapi.ModeImmediate {
		s.prepareSteering(ctx, sent, &msg)
	}

	s.mu.Lock()
	s.sent = append(s.sent, sent)
	s.mu.Unlock()
	id, err := ask(
		spans.Context(ctx, p.Traceparent), c.process, askTimeout,
		func(ctx context.Context) (string, error) { return c.sdk.Send(ctx, msg) },
	)
	if err != nil {
		s.removeSent([]*sentPrompt{sent})
		s.pushChange((*tracker).recheck)
		return fmt.Errorf("giving the prompt to the Copilot runtime: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.isDropped {
		return fmt.Errorf("giving the prompt to the Copilot runtime: %w", errLost)
	}
	sent.id = id
	return nil
}

// prepareSteering prepares a prompt that may come in the middle of a turn. The runtime runs no
// prompt hook for it, so the context of the providers is added here.
func (s *session) prepareSteering(ctx context.Context, sent *sentPrompt, msg *sdk.MessageOptions) {
	msg.Mode = adminapi.ModeImmediate
	if !s.awaitCalls() {
		return
	}
	sent.contextAsked = true
	if add := s.added(ctx, sent.text, sent.source); add != "" {
		msg.DisplayPrompt = sent.shown
		msg.Prompt += "\n\n<system_reminder>\n" + add + "\n</system_reminder>"
		sent.text = msg.Prompt
	}
}

// promptHook returns the providers' additions to a prompt that is about to begin.
func (s *session) promptHook(text string) string {
	if !s.awaitCalls() {
		return ""
	}
	source := gateway.SourceUser
	s.mu.Lock()
	for _, p := range s.sent {
		if p.text != text {
			continue
		}
		if p.contextAsked {
			s.mu.Unlock()
			return ""
		}
		p.contextAsked, source = true, p.source
		break
	}
	s.mu.Unlock()
	return s.added(s.ctx, text, source)
}

// reminderTag finds the tags in which the model gets the providers' additions.
var reminderTag = lazyregexp.New(`(?i)<(\s*/?\s*system[_-]reminder)`)

// added returns the providers' additions to a prompt. Providers pass foreign texts on, so no text
// in it can end the tags around it, and go on as the user's own words.
func (s *session) added(ctx context.Context, prompt, source string) string {
	return reminderTag.ReplaceAllString(s.calls.UserPrompt(ctx, prompt, source), "‹$1")
}

// removeBegun removes the prompt that the runtime reports as begun, and returns it. The event may
// come before the answer that has the prompt's id.
func (s *session) removeBegun(id, content string) *sentPrompt {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.sent, func(p *sentPrompt) bool { return p.id == id })
	if at < 0 {
		at = slices.IndexFunc(s.sent, func(p *sentPrompt) bool {
			return p.id == "" && p.shown == content
		})
	}
	if at < 0 {
		return nil
	}
	p := s.sent[at]
	p.hasBegun = true
	s.sent = slices.Delete(s.sent, at, at+1)
	return p
}

// removeSent removes prompts that will not begin, and returns those that were still listed.
func (s *session) removeSent(prompts []*sentPrompt) (dropped []*sentPrompt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = slices.DeleteFunc(s.sent, func(p *sentPrompt) bool {
		if !slices.Contains(prompts, p) {
			return false
		}
		dropped = append(dropped, p)
		return true
	})
	return dropped
}

// unbegun returns the prompts that have not begun, and those among them that the runtime has
// accepted.
func (s *session) unbegun() (all, taken []*sentPrompt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.sent {
		if p.id != "" {
			taken = append(taken, p)
		}
	}
	return slices.Clone(s.sent), taken
}

// messageSource gives the runtime the source of a prompt, and promptSource reads it back from an
// event.
func messageSource(source string) sdk.MessageSource {
	if name, ok := strings.CutPrefix(source, gateway.SourceProvider); ok {
		return sdk.MessageSourceAgent(name)
	}
	return ""
}

func promptSource(source *string) string {
	if name, ok := strings.CutPrefix(deref(source), string(sdk.MessageSourceAgent(""))); ok {
		return gateway.SourceProvider + name
	}
	return gateway.SourceUser
}
