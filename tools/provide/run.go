package provide

import (
	"context"
	"sync"
	"time"

	"tapgw/tools"
)

// offerAgain is how long after a refusal the provider offers the same tools again. The reason,
// another provider's tool of the same name, may be gone by then.
const offerAgain = 2 * time.Second

// RunWith runs the provider with the lists of tools that watch passes to offer, until ctx ends. It
// returns the result of [providers.Provider.Run]. The provider connects after it has tried the
// first list, so its first hello has the tools.
//
// watch runs on a goroutine of its own and must return when its ctx ends. offered is called after a
// list is offered, and after a refusal, which is err, that differs from the last one; never twice
// at a time.
func (p *Provider) RunWith(
	ctx context.Context,
	watch func(ctx context.Context, offer func([]*tools.Tool)),
	offered func(list []*tools.Tool, err error),
) error {
	ctx, cancel := context.WithCancel(ctx)
	lists, first := make(chan []*tools.Tool), make(chan struct{})
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		watch(ctx, func(list []*tools.Tool) {
			select {
			case lists <- list:
			case <-ctx.Done():
			}
		})
	})
	watching.Go(func() { p.keep(ctx, lists, offered, sync.OnceFunc(func() { close(first) })) })
	select {
	case <-first:
	case <-ctx.Done():
	}
	return p.Run(ctx)
}

// keep offers new lists, and repeats the last one while it is refused, until ctx ends. It calls
// tried after each try.
func (p *Provider) keep(
	ctx context.Context, lists <-chan []*tools.Tool, offered func([]*tools.Tool, error),
	tried func(),
) {
	var list []*tools.Tool
	var again <-chan time.Time
	refusal := ""
	for {
		select {
		case <-ctx.Done():
			return
		case list = <-lists:
		case <-again:
		}
		err := p.Offer(ctx, list)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil:
			refusal, again = "", nil
			offered(list, nil)
		case err.Error() != refusal:
			refusal, again = err.Error(), time.After(offerAgain)
			offered(list, err)
		default:
			again = time.After(offerAgain)
		}
		tried()
	}
}
