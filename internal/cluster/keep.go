package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/match"
	"tapgw/internal/protocol"
)

// Keep says which streams of this gateway's providers last, and how much of them JetStream keeps.
type Keep struct {
	Streams   []string      // globs of STREAM, of whichever provider, or of STREAM@PROVIDER
	MaxAge    time.Duration // of an event; 0: for ever
	MaxEvents int64         // of one stream; 0: any number
	MaxBytes  int64         // of all streams of the gateway together; 0: any number
}

// Limits of the events that wait for JetStream, while that is out of reach.
const (
	maxOutboxEvents = 1000
	maxOutboxBytes  = 8 << 20
)

const (
	// keepTimeout bounds each request to JetStream, and keepAgain is the time between two attempts.
	keepTimeout = 2 * time.Second
	keepAgain   = 250 * time.Millisecond
	// duplicateWindow is how long JetStream knows the ids of messages: an event whose ack was lost
	// is sent again.
	duplicateWindow = 10 * time.Minute
	// maxKeepLimits bounds the budgets of pushes that are remembered.
	maxKeepLimits = 1000
)

// Keeper keeps the events of this gateway's streams that last. It is the gateway's [gateway.Keeper]
// from its start; events wait in it until [Join] gives it a connection.
type Keeper struct {
	o     Keep
	globs []keepGlob
	life  string // begins the ids of its messages
	wake  chan struct{}

	mu     sync.Mutex // guards the fields that follow
	outbox []outgoing // oldest first
	bytes  int
	n      uint64 // events so far
	limits map[string]*rate.Limiter
	fault  string // "" while events are kept
}

type keepGlob struct{ stream, provider match.ToolGlob }

// outgoing is an event that waits to be kept.
type outgoing struct {
	id, subject string
	data        []byte
	report      func(gateway.Receipt)
	isTold      bool // that it waits
}

// NewKeeper makes a keeper; nil if no stream lasts.
func NewKeeper(o Keep) *Keeper {
	if len(o.Streams) == 0 {
		return nil
	}
	k := &Keeper{o: o, life: fmt.Sprintf("%016x", newLife()), wake: make(chan struct{}, 1),
		limits: map[string]*rate.Limiter{}}
	for _, glob := range o.Streams {
		stream, provider, hasProvider := strings.Cut(glob, "@")
		if !hasProvider {
			provider = "*"
		}
		k.globs = append(k.globs, keepGlob{match.NewToolGlob(stream), match.NewToolGlob(provider)})
	}
	return k
}

// Keeps implements [gateway.Keeper].
func (k *Keeper) Keeps(stream, provider string) bool {
	return slices.ContainsFunc(k.globs, func(g keepGlob) bool {
		return g.stream.Match(stream) && g.provider.Match(provider)
	})
}

// Keep implements [gateway.Keeper].
func (k *Keeper) Keep(e gateway.KeptEvent, report func(gateway.Receipt)) *protocol.Error {
	data, err := json.Marshal(e)
	if err != nil {
		return protocol.Errorf(protocol.CodeInvalidJSON, "push: %v", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.limitOf(e).Allow() {
		return protocol.Errorf(protocol.CodeRateLimited,
			"more than %d pushes a second; retry in a second", protocol.PushRate)
	}
	if len(k.outbox) >= maxOutboxEvents || k.bytes+len(data) > maxOutboxBytes {
		return protocol.Errorf(protocol.CodeRateLimited,
			"%d events wait to be kept already%s", len(k.outbox), prefixed(": ", k.fault))
	}
	k.n++
	out := outgoing{id: fmt.Sprintf("%s-%d", k.life, k.n), data: data, report: report,
		subject: "." + subjectToken(e.Provider) + "." + subjectToken(protocol.NormalName(e.Stream))}
	k.outbox, k.bytes = append(k.outbox, out), k.bytes+len(data)
	// Also if NATS is out of reach: the goroutine that keeps events sends the receipts, so that
	// they come in their order.
	k.hurry()
	return nil
}

// limitOf returns the budget of a provider for a session, as pushes have it. Call with k.mu held.
func (k *Keeper) limitOf(e gateway.KeptEvent) *rate.Limiter {
	key := e.Provider + " " + strings.Join(e.Sessions, " ")
	l := k.limits[key]
	if l == nil {
		if len(k.limits) >= maxKeepLimits {
			clear(k.limits)
		}
		l = rate.NewLimiter(protocol.PushRate, protocol.PushRate)
		k.limits[key] = l
	}
	return l
}

// subjectToken is a name as a token of a subject, in which a dot ends one.
func subjectToken(name string) string { return strings.ReplaceAll(name, ".", "/") }

// keptSubjects begins the subjects of a gateway's events. No gateway's name is _, so they are no
// trunk's.
func keptSubjects(gateway string) string { return subjectRoot + "_." + gateway }

// keptStream is the name of the JetStream stream that has them.
func keptStream(gateway string) string { return bucket + "_" + gateway }

// hurry makes the keeper look for work.
func (k *Keeper) hurry() { chans.Wake(k.wake) }

// tellWaiting reports that events wait, under no lock: a report sends to a provider.
func (k *Keeper) tellWaiting(why string) {
	k.mu.Lock()
	var reports []func(gateway.Receipt)
	for i := range k.outbox {
		if o := &k.outbox[i]; !o.isTold {
			o.isTold = true
			reports = append(reports, o.report)
		}
	}
	k.mu.Unlock()
	for _, report := range reports {
		report(gateway.Receipt{Fate: adminapi.FateQueued,
			Reason: "it waits in this gateway to be kept: " + why})
	}
}

// run stores waiting events until ctx ends. It calls tell after each one.
func (k *Keeper) run(ctx context.Context, c *Cluster, js jetstream.JetStream, tell func()) {
	isReady := false
	for {
		err := k.open(ctx, c, js, &isReady)
		if err == nil {
			err = k.publish(ctx, c.name, js, tell)
		}
		if ctx.Err() != nil {
			return
		}
		var again <-chan time.Time
		if err != nil {
			isReady = false
			again = time.After(keepAgain)
		}
		k.noteFault(c, err)
		select {
		case <-k.wake:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// isDisconnected reports whether an error came because the client has no connection.
func isDisconnected(err error) bool { return errors.Is(err, nats.ErrReconnectBufExceeded) }

// faultText is why JetStream did not do something, for people.
func faultText(err error) string {
	if isDisconnected(err) {
		return "not connected to NATS" // the client speaks of a full buffer
	}
	return err.Error()
}

// noteFault notes why events are not kept, and tells the pushes that wait.
func (k *Keeper) noteFault(c *Cluster, err error) {
	now, isAway := "", isDisconnected(err)
	if err != nil {
		now = faultText(err)
	}
	k.mu.Lock()
	before := k.fault
	k.fault = now
	k.mu.Unlock()
	if now != "" {
		k.tellWaiting(now)
	}
	// a start and each loss of the connection begin like that
	if now != before && now != "" && !isAway {
		c.log.Warn("events of streams that last wait", "error", now)
	}
}

// Fault says why events wait; "" while they are kept.
func (k *Keeper) Fault() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fault
}

// publish stores the waiting events in their order.
func (k *Keeper) publish(
	ctx context.Context, name string, js jetstream.JetStream, tell func(),
) error {
	for {
		k.mu.Lock()
		if len(k.outbox) == 0 {
			k.mu.Unlock()
			return nil
		}
		out := k.outbox[0]
		k.mu.Unlock()
		receipt := gateway.Receipt{Fate: adminapi.FateStored,
			Reason: "gateway " + name + " keeps it for each session"}
		within, cancel := context.WithTimeout(ctx, keepTimeout)
		ack, err := js.Publish(within, keptSubjects(name)+out.subject, out.data,
			jetstream.WithMsgID(out.id), jetstream.WithExpectStream(keptStream(name)),
			jetstream.WithRetryAttempts(0))
		cancel()
		switch {
		case errors.Is(err, nats.ErrMaxPayload), isAPIError(err, messageTooLarge):
			receipt.Fate, receipt.Reason = adminapi.FateDropped,
				"it is larger than a message of NATS may be"
		case err != nil:
			return fmt.Errorf("JetStream: %w", err)
		default:
			receipt.Seq = ack.Sequence
		}
		k.mu.Lock()
		k.bytes -= len(out.data)
		k.outbox = slices.Delete(k.outbox, 0, 1)
		k.mu.Unlock()
		out.report(receipt)
		tell()
	}
}

// open makes the gateway's JetStream stream, or gives it the limits of the config.
func (k *Keeper) open(
	ctx context.Context, c *Cluster, js jetstream.JetStream, isReady *bool,
) error {
	if *isReady {
		return nil
	}
	name := keptStream(c.name)
	if err := k.prepare(ctx, c, js, name); err != nil {
		return fmt.Errorf("the stream %s: %w", name, err)
	}
	// The first event goes out once this gateway's own sessions have their place before it.
	f := c.follow(c.name)
	if f == nil {
		return context.Canceled
	}
	if err := f.look(ctx); err != nil {
		return err
	}
	*isReady = true
	return nil
}

// prepare makes the stream, or sets its limits. A stream that an operator has made keeps its own
// limits if this gateway may not change them.
func (k *Keeper) prepare(
	ctx context.Context, c *Cluster, js jetstream.JetStream, name string,
) error {
	within, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	stream, err := js.Stream(within, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return k.create(within, js, c.name)
	}
	if err != nil {
		return err
	}
	now := stream.CachedInfo().Config
	wanted := now
	k.limit(&wanted)
	if now.MaxAge == wanted.MaxAge && now.MaxMsgsPerSubject == wanted.MaxMsgsPerSubject &&
		now.MaxBytes == wanted.MaxBytes {
		return nil
	}
	if _, err := js.UpdateStream(within, wanted); err != nil {
		c.log.Warn("the stream keeps its limits, which are not those of [cluster.keep]", "stream",
			name, "error", err)
	}
	return nil
}

// limit gives a stream the limits of the config. JetStream must not know ids for longer than it has
// their messages.
func (k *Keeper) limit(c *jetstream.StreamConfig) {
	c.MaxAge = k.o.MaxAge
	c.MaxMsgsPerSubject, c.MaxBytes = cmp.Or(k.o.MaxEvents, -1), cmp.Or(k.o.MaxBytes, -1)
	c.Duplicates = duplicateWindow
	if c.MaxAge > 0 {
		c.Duplicates = min(c.Duplicates, c.MaxAge)
	}
}

// create makes the gateway's stream: on three servers, so that it outlives the loss of one, or on
// the only server.
func (k *Keeper) create(ctx context.Context, js jetstream.JetStream, name string) error {
	config := jetstream.StreamConfig{Name: keptStream(name), Description: "events of tapgw " + name,
		Subjects: []string{keptSubjects(name) + ".>"}, Storage: jetstream.FileStorage, Replicas: 3}
	k.limit(&config)
	_, err := js.CreateStream(ctx, config)
	if isAPIError(err, noReplicas) {
		config.Replicas = 1
		_, err = js.CreateStream(ctx, config)
	}
	return err
}

// Errors of NATS: of a server without a cluster, and of one whose stream takes no message of that
// size.
const (
	noReplicas      jetstream.ErrorCode = 10074
	messageTooLarge jetstream.ErrorCode = 10054
)

func isAPIError(err error, code jetstream.ErrorCode) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && refused.ErrorCode == code
}
