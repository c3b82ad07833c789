// Package taptools is the provider "tap": the tools with which a model reads and writes the event streams of its
// session, and checks what it claims. The tools have the names and parameters that they have in tap, an extension of
// the Copilot CLI. The provider connects as any other does.
package taptools

import (
	"context"
	"sync"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/providers"
)

// Name is the provider's name.
const Name = "tap"

// Options of [Run]. All are required.
type Options struct {
	Session  *gateway.Session  // that has the tools
	Provider providers.Options // how the provider connects
	// Questions lists the open questions of all sessions.
	Questions func() []adminapi.Question
}

// Run gives a session the tools until ctx ends, and then returns nil. It returns an error if the gateway refuses them.
func Run(ctx context.Context, o Options) error {
	p := providers.New(Name, &o.Provider)
	t := &toolset{Options: o, provider: p, descriptions: map[string]string{}}
	t.addStreams()
	t.addChecks()
	t.addState()
	if err := p.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// toolset has the tools of one session.
type toolset struct {
	Options

	provider *providers.Provider

	mu           sync.Mutex        // guards descriptions
	descriptions map[string]string // of streams
}

func isReadOnly(t *providers.Tool) { t.Annotations = &providers.Annotations{ReadOnlyHint: new(true)} }
