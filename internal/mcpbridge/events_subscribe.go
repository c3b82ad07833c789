package mcpbridge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/configs"
	"tapgw/internal/chans"
	"tapgw/internal/visible"
)

// This file keeps the subscriptions to a server's resources and log messages, which a server may
// refuse or end.

// run subscribes to the resources and messages that the entries are about, and makes events of
// them, until ctx ends or the server is lost.
func (w *watch) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { w.readChanged(ctx) })
	defer w.u.b.setFaults(&w.u.b.events)
	logFaults := w.setLogLevel(ctx)
	timer := time.NewTimer(retryTime)
	defer timer.Stop()
	for {
		faults, again := w.subscribe(ctx)
		if ctx.Err() != nil {
			return
		}
		w.u.b.setFaults(&w.u.b.events, append(faults, logFaults...)...)
		if timer.Stop(); again {
			timer.Reset(retryTime)
		}
		for isDue := false; !isDue; {
			select {
			case <-w.ends:
				timer.Reset(retryTime)
			case <-w.relists:
				isDue = true
			case <-timer.C:
				isDue = true
			case <-ctx.Done():
				return
			case <-w.u.lost:
				return
			}
		}
		select {
		case <-time.After(changeGap): // changes without end cost a few listings
		case <-ctx.Done():
			return
		case <-w.u.lost:
			return
		}
	}
}

// isModern reports whether a server speaks a revision without initialize.
func (u *upstream) isModern() bool {
	return u.session.InitializeResult().ProtocolVersion > handshakeVersion
}

// setLogLevel asks a server for log messages. Since 2026-07-28, each request does.
func (w *watch) setLogLevel(ctx context.Context) (faults []string) {
	level := w.logLevel()
	if level == "" {
		return nil
	}
	has := w.u.session.InitializeResult().Capabilities
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	reason := ""
	if has == nil || has.Logging == nil { //nolint:staticcheck // as LoggingMessageHandler
		reason = "the MCP server sends no log messages: it does not have the capability logging"
	} else if !w.u.isModern() {
		//nolint:staticcheck // as LoggingMessageHandler
		err := w.u.session.SetLoggingLevel(ctx,
			&mcp.SetLoggingLevelParams{Level: mcp.LoggingLevel(level)})
		if err != nil {
			reason = "asking the MCP server for log messages: " + visible.Text(shorten(err.Error(),
				maxReason))
		}
	}
	for i, e := range w.entries {
		if e.Log != "" && reason != "" {
			faults = append(faults, w.describe(i)+": "+reason)
		}
	}
	return faults
}

// subscribe makes the subscriptions match the entries and the server's list. The faults say what is
// missing; again asks for another try.
func (w *watch) subscribe(ctx context.Context) (faults []string, again bool) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	wanted, order, faults, err := w.wanted(ctx)
	if err != nil {
		return append(faults, err.Error()), true
	}
	var gone []string
	w.mu.Lock()
	for uri := range w.subscribed {
		if wanted[uri] == nil {
			gone = append(gone, uri)
			delete(w.subscribed, uri)
		}
	}
	w.mu.Unlock()
	for _, uri := range gone {
		// later notifications of it are ignored
		_ = w.u.session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri})
	}
	for _, uri := range order {
		if w.begin(uri, wanted[uri]) {
			w.ask(ctx, uri)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	left := 0
	for _, uri := range order {
		s := w.subscribed[uri]
		again = again || s.state == isEnded || s.state == isAsked && s.fault == ""
		if s.fault == "" {
			continue
		}
		if left++; left <= maxFaults {
			faults = append(faults, fmt.Sprintf("%s: %s: %s", w.describe(s.entry),
				visible.Line(shorten(uri, 200)), s.fault))
		}
	}
	if left > maxFaults {
		faults = append(faults, fmt.Sprintf("%d more resources of events have faults",
			left-maxFaults))
	}
	return faults, again
}

// wanted returns the resources that the entries are about, by URI, and the URIs in the order of the
// entries.
func (w *watch) wanted(
	ctx context.Context,
) (all map[string]*subscription, order, faults []string, err error) {
	all = map[string]*subscription{}
	leftOut := map[int]int{} // by entry
	has := w.u.session.InitializeResult().Capabilities
	var listed []*mcp.Resource
	isListed := false
	for i, e := range w.entries {
		add := func(uri string, size int64) {
			switch {
			case all[uri] != nil: // the first entry decides
			case len(all) == maxSubscribed:
				leftOut[i]++
			default:
				all[uri], order = &subscription{entry: i, size: size}, append(order, uri)
			}
		}
		switch {
		case e.Resource == "":
		case has == nil || has.Resources == nil || !has.Resources.Subscribe:
			faults = append(faults,
				w.describe(i)+": the MCP server does not tell of changed resources: "+
					"it does not have the capability resources.subscribe")
		case !configs.IsURIGlob(e.Resource):
			add(e.Resource, 0)
		default:
			if !isListed {
				if listed, _, err = collect(w.u.session.Resources(ctx, nil)); err != nil {
					return nil, nil, faults, fmt.Errorf("%s: listing the resources: %s",
						w.describe(i), visible.Text(shorten(err.Error(), maxReason)))
				}
				isListed = true
			}
			for _, r := range listed {
				if len(r.URI) <= maxURI && matches(e.Resource, r.URI) {
					add(r.URI, r.Size)
				}
			}
		}
	}
	for i := range w.entries {
		if n := leftOut[i]; n > 0 {
			faults = append(faults,
				fmt.Sprintf("%s: %d resources left out: the bridge follows at most %d",
					w.describe(i), n, maxSubscribed))
		}
	}
	return all, order, faults, nil
}

// begin reports whether the server has to be asked for a subscription.
func (w *watch) begin(uri string, wanted *subscription) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.subscribed[uri]
	if s != nil {
		s.entry, s.size = wanted.entry, wanted.size
	}
	switch {
	case s == nil:
		s = wanted
		w.subscribed[uri] = s
	case s.state == isAsked && time.Since(s.asked) >= retryTime:
		s.fault = "the MCP server has not confirmed the subscription"
		return false
	case s.state != isEnded:
		return false
	}
	s.state, s.asked = isAsked, time.Now()
	return true
}

// ask subscribes to a resource. Since 2026-07-28, the server confirms it later.
func (w *watch) ask(ctx context.Context, uri string) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	if w.u.isModern() {
		end := func() {
			_ = w.u.session.Unsubscribe(context.WithoutCancel(ctx),
				&mcp.UnsubscribeParams{URI: uri})
		}
		end() // or the SDK would take an ended subscription for one that runs
		// The SDK waits for the beginning of the answer, whatever ctx says.
		defer context.AfterFunc(ctx, end)()
	}
	err := w.u.session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri})
	switch {
	case ctx.Err() != nil:
		w.setState(uri, isEnded, "subscribing to it: the MCP server does not answer within "+
			readTime.String())
	case err == nil && w.u.isModern():
	case err == nil:
		w.setState(uri, isActive, "")
	case isAnswer(err):
		w.setState(uri, isRefused,
			"subscribing to it: "+visible.Text(shorten(err.Error(), maxReason)))
	default:
		w.setState(uri, isEnded,
			"subscribing to it: "+visible.Text(shorten(err.Error(), maxReason)))
	}
}

// setState sets the state of a subscription, and reports whether it had a fault.
func (w *watch) setState(uri string, state subscriptionState, fault string) (hadFault bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.subscribed[uri]
	if s == nil {
		return false
	}
	hadFault = s.fault != ""
	s.state, s.fault = state, fault
	return hadFault
}

// ended notes that the server has ended the stream of a subscription. One that it never confirmed
// it refuses.
func (w *watch) ended(uri string) {
	w.mu.Lock()
	s := w.subscribed[uri]
	switch {
	case s == nil:
	case s.state == isActive:
		s.state, s.fault = isEnded, "the MCP server has ended the subscription; asked again in "+
			retryTime.String()
	case s.state == isAsked:
		s.state, s.fault = isRefused, "the MCP server refuses the subscription"
	}
	w.mu.Unlock()
	chans.Wake(w.ends)
}
