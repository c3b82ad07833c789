package mcpbridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"tapgw/configs"
	"tapgw/internal/chans"
	"tapgw/internal/visible"
	"tapgw/providers"
)

const (
	maxSubscribed = 100      // resources of a server whose changes are followed
	maxEventText  = 32 << 10 // bytes of an event's text; a model reads it whole
	maxRead       = 1 << 20  // bytes that a resource may have by the server's list, to be read
	maxURI        = 4 << 10  // bytes of a resource's URI; one with a longer one is passed over
	readTime      = 10 * time.Second
	readRate      = 10 // resources that are read in a second
	// eventGap is the shortest time between two events about one resource. Changes meanwhile become
	// one event.
	eventGap = time.Second
	// retryTime is how long the bridge waits before it subscribes again after a subscription failed
	// or was ended by the server.
	retryTime = 5 * time.Second
)

// watch makes events of a server's notifications: changes of resources, and log messages. Without
// [[events]] in the file it makes no events.
type watch struct {
	u       *upstream
	entries []configs.MCPEvent
	outbox  *outbox
	relists chan struct{} // holds one item; the resources have to be listed anew
	ends    chan struct{} // holds one item; the server has ended a subscription
	came    chan struct{} // holds one item; a resource has changed

	mu         sync.Mutex // guards the fields that follow
	subscribed map[string]*subscription
	changed    []string             // URIs of resources to read, in the order of their changes
	readAt     map[string]time.Time // of the last event gap
}

// subscription is a resource whose changes the server is to tell of.
type subscription struct {
	entry int
	size  int64 // by the server's list; 0 if it does not say
	state subscriptionState
	asked time.Time // when the server was asked last
	fault string
}

type subscriptionState int

const (
	isAsked   subscriptionState = iota // the server has not confirmed it
	isActive                           // the server has confirmed it
	isRefused                          // the server does not have it; asking again is of no use
	isEnded                            // to be asked again
)

func newWatch(u *upstream) *watch {
	return &watch{
		u: u, entries: u.b.o.Provider.MCP.Events,
		outbox:  newOutbox(func(line string) { u.b.o.Line(fromGateway, line) }),
		relists: make(chan struct{}, 1), ends: make(chan struct{}, 1), came: make(chan struct{}, 1),
		subscribed: map[string]*subscription{}, readAt: map[string]time.Time{},
	}
}

// addTo makes a client handle the notifications that the entries are about.
func (w *watch) addTo(o *mcp.ClientOptions) {
	has := func(is func(configs.MCPEvent) bool) bool { return slices.ContainsFunc(w.entries, is) }
	if has(func(e configs.MCPEvent) bool { return e.Resource != "" }) {
		o.ResourceUpdatedHandler = func(
			_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) {
			if req.Params != nil {
				w.update(req.Params.URI)
			}
		}
	}
	if has(func(e configs.MCPEvent) bool { return configs.IsURIGlob(e.Resource) }) {
		o.ResourceListChangedHandler = func(context.Context, *mcp.ResourceListChangedRequest) {
			chans.Wake(w.relists)
		}
	}
	if w.logLevel() != "" {
		//nolint:staticcheck // servers of the older revisions know no other way
		o.LoggingMessageHandler = func(_ context.Context, req *mcp.LoggingMessageRequest) {
			w.log(req.Params)
		}
	}
}

// subscriptionKey is the key of the URI in the context of a request that subscribes to it.
type subscriptionKey struct{}

// sending is the SDK's middleware for requests. Since 2026-07-28, each says which log messages may
// come with it, and the stream of a subscription has to be told from others.
func (w *watch) sending(next mcp.MethodHandler) mcp.MethodHandler {
	level := w.logLevel()
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if params := req.GetParams(); level != "" && params != nil {
			if meta := params.GetMeta(); meta[mcp.MetaKeyProtocolVersion] != nil {
				meta[mcp.MetaKeyLogLevel] = level //nolint:staticcheck // as LoggingMessageHandler
			}
		}
		if p, ok := req.GetParams().(*mcp.SubscriptionsListenParams); ok && p.Notifications != nil {
			if uris := p.Notifications.ResourceSubscriptions; len(uris) == 1 {
				ctx = context.WithValue(ctx, subscriptionKey{}, uris[0])
			}
		}
		return next(ctx, method, req)
	}
}

// receiving is the SDK's middleware for notifications: it sees which subscriptions the server
// confirms.
func (w *watch) receiving(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p, ok := req.GetParams().(*mcp.SubscriptionsAcknowledgedParams); ok && p != nil {
			for _, uri := range p.Notifications.ResourceSubscriptions {
				if w.setState(uri, isActive, "") {
					chans.Wake(w.relists) // the fault has gone
				}
			}
		}
		return next(ctx, method, req)
	}
}

// logLevel is the lowest level of log messages that an entry is about, "" if no entry is about log
// messages.
func (w *watch) logLevel() string {
	least := len(configs.MCPLogLevels)
	for _, e := range w.entries {
		if e.Log != "" {
			least = min(least, slices.Index(configs.MCPLogLevels, e.Log))
		}
	}
	if least == len(configs.MCPLogLevels) {
		return ""
	}
	return configs.MCPLogLevels[least]
}

// describe names an entry in a fault.
func (w *watch) describe(entry int) string {
	e := w.entries[entry]
	if e.Log != "" {
		return fmt.Sprintf("events[%d] (log %s)", entry, e.Log)
	}
	return fmt.Sprintf("events[%d] (resource %s)", entry, visible.Line(shorten(e.Resource, 200)))
}

// prepare gives the provider the filters of its streams, and makes it the one that pushes.
func (w *watch) prepare(ctx context.Context, p *providers.Provider) error {
	w.outbox.p = p
	for i, e := range w.entries {
		if len(e.Filter) == 0 {
			continue
		}
		var rules []providers.FilterRule
		for _, r := range e.Filter {
			rules = append(rules,
				providers.FilterRule{Match: r.Match, Outcome: providers.Level(r.Outcome)})
		}
		if _, err := p.SetFilter(ctx, cmp.Or(e.Stream, w.u.b.o.Provider.Name),
			rules...); err != nil {
			return fmt.Errorf("events[%d].filter: %w", i, err)
		}
	}
	return nil
}

// update notes that a resource has changed. A server may also name a part of one that is
// subscribed.
func (w *watch) update(uri string) {
	if len(uri) > maxURI {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.find(uri) == nil || slices.Contains(w.changed, uri) || len(w.changed) == maxSubscribed {
		return
	}
	w.changed = append(w.changed, uri)
	chans.Wake(w.came)
}

// find returns the subscription that a URI belongs to, or nil. Call it with mu held.
func (w *watch) find(uri string) *subscription {
	for whole := uri; ; {
		if s := w.subscribed[whole]; s != nil {
			return s
		}
		at := strings.LastIndexByte(strings.TrimSuffix(whole, "/"), '/')
		if at <= 0 {
			return nil
		}
		whole = whole[:at]
	}
}

// nextRead removes a resource whose change is to be told of now. Without one, wait is how long
// until the first.
func (w *watch) nextRead() (uri string, s subscription, wait time.Duration) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for uri, at := range w.readAt {
		if now.Sub(at) >= eventGap {
			delete(w.readAt, uri)
		}
	}
	wait = time.Hour
	for i, uri := range w.changed {
		if at, isEarly := w.readAt[uri]; isEarly {
			wait = min(wait, at.Add(eventGap).Sub(now))
			continue
		}
		w.changed = slices.Delete(w.changed, i, i+1)
		if s := w.find(uri); s != nil {
			w.readAt[uri] = now
			return uri, *s, 0
		}
		return "", s, 0
	}
	return "", s, wait
}

// readChanged makes events of changed resources until ctx ends.
func (w *watch) readChanged(ctx context.Context) {
	limit := rate.NewLimiter(readRate, readRate)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.u.lost:
			return
		case <-w.came:
		case <-timer.C:
		}
		uri, s, wait := w.nextRead()
		timer.Reset(wait)
		if uri == "" {
			continue
		}
		entry := &w.entries[s.entry]
		if !w.outbox.wants(entry) {
			continue
		}
		if limit.Wait(ctx) != nil {
			return
		}
		text := w.textOf(ctx, uri, s)
		select {
		case <-ctx.Done():
		case <-w.u.lost: // the text says only that
		default:
			w.outbox.add(event{entry: entry, uri: uri, text: text,
				metadata: map[string]any{"uri": uri}})
		}
	}
}

// textOf returns an event's text: the resource's name, and its content if the entry wants that.
func (w *watch) textOf(ctx context.Context, uri string, s subscription) string {
	name := visible.Line(shorten(uri, maxReason))
	switch {
	case !w.entries[s.entry].Read:
		return name + " has changed"
	case s.size > maxRead:
		return fmt.Sprintf("%s has changed; it is not read, for it has %d bytes", name, s.size)
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	contents, err := w.u.readResource(ctx, uri)
	if err != nil {
		return fmt.Sprintf("%s has changed; reading it: %s", name,
			visible.Text(shorten(err.Error(), maxReason)))
	}
	var parts []string
	for _, c := range contents {
		switch {
		case c == nil:
		case c.Blob != nil:
			parts = append(parts, fmt.Sprintf("[%s, %d bytes: it is no text]", kindOf(c.MIMEType),
				len(c.Blob)))
		default:
			parts = append(parts, c.Text)
		}
	}
	return bounded(name + " has changed:\n" + strings.Join(parts, "\n"))
}

// bounded cuts an event's text.
func bounded(text string) string {
	if len(text) <= maxEventText {
		return text
	}
	cut := strings.ToValidUTF8(text[:maxEventText], "")
	return fmt.Sprintf("%s\n[cut here: the whole text has %d bytes]", cut, len(text))
}

// log makes an event of a log message that an entry is about.
func (w *watch) log(m *mcp.LoggingMessageParams) { //nolint:staticcheck // as LoggingMessageHandler
	level := slices.Index(configs.MCPLogLevels, string(m.Level))
	at := slices.IndexFunc(w.entries, func(e configs.MCPEvent) bool {
		if e.Log == "" || level < slices.Index(configs.MCPLogLevels, e.Log) {
			return false
		}
		ok, err := path.Match(cmp.Or(e.Logger, "*"), m.Logger)
		return e.Logger == "" || ok && err == nil
	})
	if at < 0 || !w.outbox.wants(&w.entries[at]) {
		return
	}
	text, isText := m.Data.(string)
	if !isText {
		data, err := json.Marshal(m.Data)
		if err != nil {
			return
		}
		text = string(data)
	}
	head, metadata := string(m.Level), map[string]any{"level": m.Level}
	if m.Logger != "" {
		logger := visible.Line(shorten(m.Logger, 100))
		head, metadata["logger"] = head+" of "+logger, logger
	}
	w.outbox.add(event{entry: &w.entries[at], text: bounded(head + ": " + text),
		metadata: metadata})
}

// matches reports whether an entry's resource is a glob that matches a URI.
func matches(glob, uri string) bool {
	ok, err := doublestar.Match(glob, uri)
	return configs.IsURIGlob(glob) && ok && err == nil
}

// isAnswer reports whether a server answered with an error: asking again is of no use.
func isAnswer(err error) bool {
	_, is := errors.AsType[*jsonrpc.Error](err)
	return is
}
