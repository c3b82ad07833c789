package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
)

// This file joins the cluster over NATS: it connects, and keeps this gateway's entry in the
// registry.

// Server says how to reach NATS. Paths are absolute.
type Server struct {
	URLs        []string
	Credentials string // a file with a user's JWT and key; optional
	NKey        string // a file with the seed of an nkey; optional
	CA          string // PEM files; optional
	Cert, Key   string
}

// bucket is the KV bucket of the registry: in memory, a key for each gateway.
const bucket = "tapgw"

// inbox begins the subjects of the answers that a gateway gets. With one for all, each could hear
// the answers to others, such as events that it may not read.
func inbox(gateway string) string { return "_INBOX." + gateway }

// options of a connection. Nothing is kept while it is lost: a call or an answer to a gate must not
// come late.
func (s *Server) options(name string) ([]nats.Option, error) {
	o := []nats.Option{
		nats.Name("tapgw " + name),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(200 * time.Millisecond), nats.ReconnectJitter(50*time.Millisecond,
			50*time.Millisecond), nats.ReconnectBufSize(-1),
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2),
		nats.IgnoreAuthErrorAbort(), nats.NoEcho(), nats.Timeout(dialTimeout),
		nats.CustomInboxPrefix(inbox(name)),
		// A trunk collects messages and sends them together, so the connection need not do that
		// again. And a server that reads nothing must not block senders, or the pings, for the
		// client's default of a minute.
		nats.WriteBufferSize(1), nats.FlusherTimeout(writeTimeout),
	}
	if s.Credentials != "" {
		o = append(o, nats.UserCredentials(s.Credentials))
	}
	if s.NKey != "" {
		key, err := nats.NkeyOptionFromSeed(s.NKey)
		if err != nil {
			return nil, fmt.Errorf("cluster.nkey: %s: %w", s.NKey, err)
		}
		o = append(o, key)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, fmt.Errorf("cluster.tls_ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("cluster.tls_ca: %s has no certificate in PEM", s.CA)
		}
	}
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, fmt.Errorf("cluster.tls_cert, cluster.tls_key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if s.CA != "" || s.Cert != "" {
		o = append(o, nats.Secure(config))
	}
	return o, nil
}

// natsBus is a [Bus] over a connection to NATS.
type natsBus struct{ conn *nats.Conn }

func (b natsBus) Publish(subject, reply string, data []byte) error {
	return b.conn.PublishRequest(subject, reply, data)
}

func (b natsBus) MaxPayload() int {
	if n := b.conn.MaxPayload(); n > 0 {
		return int(n)
	}
	return 1 << 20 // it is not connected yet
}

func (b natsBus) Subscribe(
	subject string, handle func(data []byte, isUnread bool),
) (func(), error) {
	sub, err := b.conn.Subscribe(subject, func(m *nats.Msg) {
		handle(m.Data, len(m.Data) == 0 && m.Header.Get("Status") == "503")
	})
	if err != nil {
		return nil, fmt.Errorf("subscribing to %s: %w", subject, err)
	}
	// A peer that floods loses its own messages, and with the first of them its trunk.
	if err := sub.SetPendingLimits(maxPendingMessages, maxPendingBytes); err != nil {
		return nil, fmt.Errorf("subscribing to %s: %w", subject, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

const (
	maxPendingMessages = 65_536
	maxPendingBytes    = 64 << 20
)

const (
	dialTimeout  = 2 * time.Second // of the attempt to reach one server
	writeTimeout = 3 * time.Second // of one write to it, at most a message
)

// firstDialer makes the first attempts to reach the servers fail at once, so that a gateway's start
// does not wait for them: the connection tries again in the background.
type firstDialer struct{ isOver atomic.Bool }

var errLater = errors.New("it is tried again later")

// Dial implements [nats.CustomDialer].
func (d *firstDialer) Dial(network, address string) (net.Conn, error) {
	if !d.isOver.Load() {
		return nil, errLater
	}
	return net.DialTimeout(network, address, dialTimeout)
}

// Joined is a gateway in a cluster, with its connection to NATS.
type Joined struct {
	*Cluster
	conn     *nats.Conn
	registry registry
}

// Join takes part in a cluster. The servers need not be within reach yet: it looks for them until
// Close. An error means that a file that s names can't be used.
func Join(o Options, s Server) (*Joined, error) {
	options, err := s.options(o.Name)
	if err != nil {
		return nil, err
	}
	j := &Joined{}
	first := &firstDialer{}
	options = append(options, nats.SetCustomDialer(first))
	ready := make(chan struct{}) // j.Cluster is set
	lost := func(why string) {
		<-ready
		if j.Cluster != nil {
			j.Cluster.connLost(why)
		}
	}
	options = append(options,
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			lost("the connection to NATS is lost: " + orUnknown(err))
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			<-ready
			if j.Cluster != nil {
				o.Log.Info("connected to NATS", "server", c.ConnectedUrlRedacted())
				j.mu.Lock()
				clear(j.said)
				j.mu.Unlock()
				j.registry.wake()
				j.wakeFollowers()
			}
		}),
		nats.ConnectHandler(func(c *nats.Conn) {
			<-ready
			o.Log.Info("connected to NATS", "server", c.ConnectedUrlRedacted())
			j.registry.wake()
			if j.Cluster != nil {
				j.wakeFollowers()
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			<-ready
			j.failed(sub, err)
		}),
	)
	j.registry.poke = make(chan struct{}, 1)
	j.conn, err = nats.Connect(strings.Join(s.URLs, ","), options...)
	if err != nil {
		close(ready)
		return nil, fmt.Errorf("cluster.urls: %w", withoutSecrets(err, s.URLs))
	}
	first.isOver.Store(true)
	js, err := jetstream.New(j.conn)
	if err != nil {
		close(ready)
		j.conn.Close()
		return nil, err
	}
	j.Cluster, err = Start(o, natsBus{j.conn})
	close(ready)
	if err != nil {
		j.conn.Close()
		return nil, err
	}
	j.keepAndFollow(js)
	j.work.Go(j.followSessions)
	j.work.Go(func() { j.registry.run(j.ctx, j.Cluster, j.conn) })
	return j, nil
}

// keepAndFollow begins to keep events, and to hand out those of gateways whose events sessions here
// have had.
func (j *Joined) keepAndFollow(js jetstream.JetStream) {
	at, err := openPositions(j.o.StateFile)
	if err != nil {
		j.log.Warn("sessions begin anew in the streams that last", "error", err)
	}
	names := slices.Collect(maps.Keys(at.origins))
	j.mu.Lock()
	j.js, j.positions = js, at
	j.mu.Unlock()
	for _, name := range names {
		j.follow(name)
	}
	if j.o.Keeper != nil {
		j.follow(j.name)
		j.work.Go(func() { j.o.Keeper.run(j.ctx, j.Cluster, js, j.tellKept) })
	}
}

func orUnknown(err error) string {
	if err == nil {
		return "closed"
	}
	return err.Error()
}

// withoutSecrets removes the URLs, which may have passwords, from an error.
func withoutSecrets(err error, urls []string) error {
	text := err.Error()
	for _, s := range urls {
		if u, parsed := url.Parse(s); parsed == nil && u.User != nil {
			text = strings.ReplaceAll(text, s, u.Redacted())
		}
	}
	return errors.New(text)
}

// failed handles an error of the connection that no call returns.
func (j *Joined) failed(sub *nats.Subscription, err error) {
	j.mu.Lock()
	// such as that a right is missing, of each of several gateways, again and again
	isNew := !j.said[err.Error()]
	if len(j.said) >= maxMembers {
		clear(j.said)
	}
	j.fault, j.said[err.Error()] = err.Error(), true
	j.mu.Unlock()
	if isNew {
		j.log.Warn("NATS", "error", err)
	}
	if sub == nil || !errors.Is(err, nats.ErrSlowConsumer) {
		return
	}
	for _, tr := range j.trunks {
		if tr.from == sub.Subject {
			j.count(tr.peer, "messages beyond what waits")
			tr.fail("it sends faster than this gateway takes")
		}
	}
}

// Close leaves the cluster and ends the connection.
func (j *Joined) Close() {
	j.Cluster.Close()
	_ = j.conn.FlushTimeout(time.Second)
	j.conn.Close()
}

// State asks the other gateways and returns the state of the cluster.
func (j *Joined) State(ctx context.Context) adminapi.Cluster {
	j.askAll(ctx)
	return j.Known()
}

// Known returns the state of the cluster as of the last time the others were asked.
func (j *Joined) Known() adminapi.Cluster {
	sessions, providers := j.known()
	return adminapi.Cluster{Name: j.name, Connected: j.conn.IsConnected(), Fault: j.Fault(),
		Gateways: j.Members(), Sessions: sessions, Providers: providers}
}

// Fault says why other gateways do not see this one, or it does not see them; "" while all works.
func (j *Joined) Fault() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.conn.IsConnected() {
		return "not connected to NATS" + prefixed(": ", j.fault)
	}
	if j.o.Keeper != nil {
		if fault := j.o.Keeper.Fault(); fault != "" {
			return "events of streams that last wait: " + fault + j.refusal()
		}
	}
	for name, f := range j.followers {
		if f.fault != "" {
			return "the events that gateway " + name + " keeps do not come: " + f.fault +
				j.refusal()
		}
	}
	return prefixed("the registry does not work: ", j.registryError)
}

// refusal returns the servers' last error about the rights of this gateway's NATS user: a request
// that they refuse gets no answer. Call with mu held.
func (j *Joined) refusal() string {
	if strings.Contains(strings.ToLower(j.fault), "permissions violation") {
		return "; " + j.fault
	}
	return ""
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// registry keeps this gateway in the KV bucket, and the others of the bucket in the cluster's list.
type registry struct {
	poke chan struct{}

	// Of the goroutine of run.
	kv      jetstream.KeyValue // nil until the bucket is open
	watcher jetstream.KeyWatcher
}

func (r *registry) wake() { chans.Wake(r.poke) }

// registryTimeout bounds each request to the registry.
const registryTimeout = 2 * time.Second

// run says that the gateway is there, every 3 seconds and when the connection has come back, until
// ctx ends.
func (r *registry) run(ctx context.Context, c *Cluster, conn *nats.Conn) {
	beat := Beat{Version: c.o.Version, StartedAt: time.Now().UTC().Truncate(time.Millisecond),
		Keeps: c.o.Keeper != nil}
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer r.leave(c.name)
	isFresh, fault := true, ""
	for {
		if conn.IsConnected() {
			err := r.beat(ctx, c, conn, &watching, beat, isFresh)
			if ctx.Err() == nil {
				fault = c.registryFault(fault, err)
			}
			if err != nil {
				r.stop()
			}
		}
		select {
		case <-ticker.C:
			isFresh = false
		case <-r.poke: // the servers may have forgotten the bucket
			isFresh = true
		case <-ctx.Done():
			return
		}
	}
}

// beat puts the gateway into the bucket. Without a bucket it opens or makes one, and watches it.
func (r *registry) beat(
	ctx context.Context, c *Cluster, conn *nats.Conn, watching *sync.WaitGroup, beat Beat,
	isFresh bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	if isFresh {
		r.stop()
	}
	if r.kv == nil {
		js, err := jetstream.New(conn)
		if err != nil {
			return err
		}
		kv, err := openBucket(ctx, js)
		if err != nil {
			return err
		}
		watcher, err := kv.WatchAll(c.ctx)
		if err != nil {
			return fmt.Errorf("watching the bucket %s: %w", bucket, err)
		}
		r.kv, r.watcher = kv, watcher
		watching.Go(func() { watch(c, watcher) })
	}
	beat.Lists = c.listsNumber()
	data, _ := json.Marshal(beat) // cannot fail
	if _, err := r.kv.Put(ctx, c.name, data); err != nil {
		return fmt.Errorf("writing to the bucket %s: %w", bucket, err)
	}
	return nil
}

// openBucket opens the bucket, or makes it: on three servers if there are three, so that it
// outlives the loss of one.
func openBucket(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, bucket)
	if err == nil || !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	for _, replicas := range []int{3, 1} {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket,
			TTL: 10 * time.Second, LimitMarkerTTL: 5 * time.Second,
			Storage: jetstream.MemoryStorage, Replicas: replicas})
		if err == nil {
			return kv, nil
		}
		if errors.Is(err, jetstream.ErrBucketExists) { // another gateway was faster
			return js.KeyValue(ctx, bucket)
		}
	}
	return nil, fmt.Errorf("making the bucket %s: %w", bucket, err)
}

// watch keeps the list of the cluster until the watcher stops.
func watch(c *Cluster, w jetstream.KeyWatcher) {
	for entry := range w.Updates() {
		switch {
		case entry == nil: // the end of the existing entries
		case entry.Operation() != jetstream.KeyValuePut:
			c.memberLeft(entry.Key())
		default:
			var b Beat
			if json.Unmarshal(entry.Value(), &b) != nil || len(b.Version) > 100 {
				c.count(entry.Key(), "malformed entries of the registry")
				continue
			}
			c.heard(entry.Key(), b)
		}
	}
}

// registryFault logs a fault of the registry that is another than before, and returns it.
func (c *Cluster) registryFault(before string, err error) string {
	now := ""
	if err != nil {
		now = err.Error()
	}
	if now != before && now != "" {
		c.log.Warn("the registry of the cluster: other gateways do not see this one", "error", now)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.registryError = now
	return now
}

// leave takes the gateway out of the bucket.
func (r *registry) leave(name string) {
	if r.kv != nil {
		ctx, cancel := context.WithTimeout(context.Background(), registryTimeout/4)
		defer cancel()
		_ = r.kv.Delete(ctx, name) // it is forgotten anyway, some seconds later
	}
	r.stop()
}

func (r *registry) stop() {
	if r.watcher != nil {
		_ = r.watcher.Stop()
	}
	r.kv, r.watcher = nil, nil
}
