package provide

import (
	"context"
	"time"

	"tapgw/tools"
)

// offerAgain is how long after a refusal the same tools are offered again: what
// stood in their way, another provider's tool of the same name, may be gone.
const offerAgain = 2 * time.Second

// Keep offers the lists of tools that come, the last one again while it is refused,
// until ctx ends. told is called after each try, never twice at a time.
func (p *Provider) Keep(ctx context.Context, lists <-chan []*tools.Tool, told func(list []*tools.Tool, err error)) {
	var list []*tools.Tool
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case list = <-lists:
		case <-again:
		}
		err := p.Offer(ctx, list)
		if again = nil; err != nil {
			again = time.After(offerAgain)
		}
		if ctx.Err() == nil {
			told(list, err)
		}
	}
}
