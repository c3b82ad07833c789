// Package taptools is the provider "tap": the tools with which a model reads and writes the event
// streams of its session, and checks its own claims. The tools have the names and parameters that
// they have in tap, an extension of the Copilot CLI. The provider connects as any other does.
package taptools

import (
	"context"
	"errors"
	"strings"
	"sync"

	"tapgw/internal/adminapi"
	"tapgw/internal/evidence"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/providers"
)

// Name is the provider's name.
const Name = "tap"

// Options of [Run]. All but Calls, Records, Goals and Emitters are required.
type Options struct {
	Session  *gateway.Session  // that has the tools
	Provider providers.Options // how the provider connects
	// Questions lists the open questions of all sessions.
	Questions func() []adminapi.Question
	// Calls finds the recorded calls; it may be nil.
	Calls evidence.Calls
	// Records finds records. If it is nil, the tool for them is missing.
	Records func(context.Context, adminapi.RecordQuery) (adminapi.Records, error)
	// Goals are the goals of sessions; nil: there are no tools for them.
	Goals Goals
	// Emitters runs the emitters that the model starts. If it is nil, the tools for them are
	// missing.
	Emitters Emitters
	// Log keeps the lines that an emitter prints, by the name of its provider, until done is
	// called; required with Emitters.
	Log func(name string) (line func(from, line string), done func())
}

// Run gives a session the tools until ctx ends, and then returns nil. It returns an error if the
// gateway refuses them.
func Run(ctx context.Context, o Options) error {
	p := providers.New(Name, &o.Provider)
	ctx, cancel := context.WithCancel(ctx)
	t := &toolset{
		Options: o, provider: p, ctx: ctx, descriptions: map[string]string{},
		emitters:  map[string]*emitter{},
		injectors: map[string]*injector{},
	}
	defer func() {
		cancel()
		t.running.Wait()
		for _, e := range t.emitters {
			e.closeLog()
		}
	}()
	t.addStreams()
	t.addChecks()
	t.addState()
	t.addRecords()
	if o.Goals != nil {
		t.addGoals()
	}
	t.addEmitters()
	if err := p.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// toolset has the tools of one session.
type toolset struct {
	Options

	provider *providers.Provider
	ctx      context.Context // ends with the tools
	running  sync.WaitGroup  // emitters, and pushes about them

	mu           sync.Mutex           // guards the fields that follow
	descriptions map[string]string    // of streams
	emitters     map[string]*emitter  // by the names of their providers
	injectors    map[string]*injector // by stream
}

// addTool adds a tool to those of the session. The model is to read why a call failed, and to go
// on.
func addTool[In, Out any](t *toolset, name, description string,
	call func(context.Context, In) (Out, error), options ...func(*providers.Tool)) {
	providers.AddTool(t.provider, name, description, func(ctx context.Context, in In) (Out, error) {
		out, err := call(ctx, in)
		return out, forModel(err)
	}, options...)
}

// forModel is an error as the model reads it. A provider has no code of its own for a refusal or
// for arguments: DENIED and INVALID_ARGUMENTS are the gateway's, and UNAUTHORIZED ends the turn of
// a Copilot session before the model reads why. So these errors have no code, and their text does
// not begin with one.
func forModel(err error) error {
	coded, ok := errors.AsType[*protocol.Error](err)
	switch {
	case !ok:
		return err
	case coded.Code == protocol.CodeNotFound:
		return providers.NotFound("%s", coded.Message)
	}
	return errors.New(strings.ReplaceAll(err.Error(), coded.Error(), coded.Message))
}

func isReadOnly(t *providers.Tool) {
	t.Annotations = &providers.Annotations{ReadOnlyHint: new(true)}
}
