package cluster

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// operatorStream makes the stream of gateway a as a user with all rights.
func operatorStream(
	t *testing.T, url string, change func(*jetstream.StreamConfig),
) jetstream.Stream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, _ := jetstream.New(nc)
	config := jetstream.StreamConfig{Name: "tapgw_a", Subjects: []string{"tap._.a.>"}}
	change(&config)
	stream, err := js.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// withoutStreams is the rights of gateways that may make and change no streams that last.
func withoutStreams(names ...string) func(*server.Options) {
	return func(o *server.Options) {
		rights()(o)
		for _, name := range names {
			p := permissions(name)
			p.Publish.Deny = []string{"$JS.API.STREAM.CREATE.tapgw_" + name,
				"$JS.API.STREAM.UPDATE.tapgw_" + name}
			o.Users = append(o.Users, &server.User{Username: name, Password: "secret-" + name,
				Permissions: p})
		}
	}
}

// A gateway that may not change the stream that an operator has made keeps events in it, within its
// limits. The check finds nothing wrong with that. Replicas may answer in a stream of an operator;
// no user needs the right to ask them.
func TestKeptInStreamOfOperator(t *testing.T) {
	s := natsServer(t, withoutStreams("a", "b"))
	stream := operatorStream(t, withUser(s.ClientURL(), "any"), func(c *jetstream.StreamConfig) {
		c.MaxAge, c.AllowDirect = 2*time.Hour, true
	})
	a := startKeeping(t, "a", withUser(s.ClientURL(), "a"), allBuilds)
	b := startKeeping(t, "b", withUser(s.ClientURL(), "b"), Keep{})
	sb, _ := b.session("sb")
	b.hasPlace("a", "sb")
	a.tell(1, 3)
	awaitEvents(t, sb, numbers(1, 3))
	h := b.History(t.Context(), nil, 0, time.Time{})
	if len(h.Events) != 3 || len(h.Faults) != 1 || !strings.Contains(h.Faults[0], "gateway c") {
		t.Errorf("%d events and the faults %v, want three, and that it may not read what c keeps",
			len(h.Events), h.Faults)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.Config.MaxAge != 2*time.Hour {
		t.Errorf("%+v, %v, want the limits of the operator", info, err)
	}
	for _, f := range Check(t.Context(), CheckOptions{Name: "a", Admit: []string{"b"}, Keeps: true,
		Server: Server{URLs: []string{withUser(s.ClientURL(), "a")}}}) {
		if f.Check == "keeps" && f.Status != FoundOK {
			t.Errorf("%+v, want ok: the stream is there", f)
		}
	}
}

// A gateway whose config has new limits gives them to its stream.
func TestKeptLimitsChange(t *testing.T) {
	s := natsServer(t, nil)
	a := startKeeping(t, "a", s.ClientURL(), allBuilds)
	a.tell(1, 1)
	a.stop()
	a.keep = Keep{Streams: []string{"builds"}, MaxAge: time.Minute, MaxEvents: 7, MaxBytes: 2 << 20}
	a.start()
	a.tell(2, 2)
	stream, err := a.js.Stream(t.Context(), "tapgw_a")
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	if c.MaxAge != time.Minute || c.MaxMsgsPerSubject != 7 || c.MaxBytes != 2<<20 {
		t.Errorf("%+v, want the new limits", c)
	}
}

// An event that the stream never takes holds up no other one: its receipt tells its fate.
func TestKeptTooLarge(t *testing.T) {
	s := natsServer(t, nil)
	operatorStream(t, s.ClientURL(), func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 })
	a := startKeeping(t, "a", s.ClientURL(), Keep{Streams: []string{"builds"}})
	until(t, "events are kept", func() bool { return a.o.Keeper.Fault() == "" })
	push := func(size int) gateway.Receipt {
		r, err := a.gateway.Broadcast(t.Context(), "ci",
			&protocol.Push{Stream: "builds", Level: protocol.LevelKeep,
				Event: strings.Repeat("x", size)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, test := range []struct {
		size int
		want adminapi.Fate
	}{
		{2000, adminapi.FateDropped}, {10, adminapi.FateStored}, {3 << 19, adminapi.FateDropped},
		{11, adminapi.FateStored},
	} {
		if r := push(test.size); r.Fate != test.want {
			t.Errorf("an event of %d bytes: %+v, want %s", test.size, r, test.want)
		}
	}
}

// A fault that comes again and again, beside another one, is one line of the log.
func TestFaultsAreSaidOnce(t *testing.T) {
	s := natsServer(t, nil)
	var log bytes.Buffer
	a := startKeeping(t, "a", s.ClientURL(), Keep{})
	a.log = slog.New(slog.NewTextHandler(&log, nil))
	for range 3 {
		a.failed(nil, errors.New("no right to read a"))
		a.failed(nil, errors.New("no right to read b"))
	}
	if n := strings.Count(log.String(), "no right"); n != 2 {
		t.Errorf("%d lines, want one for each fault:\n%s", n, log.String())
	}
}

// lateServer answers for streams as a server does that was frozen, and still takes itself for their
// leader.
type lateServer struct {
	jetstream.JetStream
	left *atomic.Int32 // answers that it gives before it has caught up
}

func (l lateServer) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := l.JetStream.Stream(ctx, name)
	return lateStream{s, l.left}, err
}

type lateStream struct {
	jetstream.Stream
	left *atomic.Int32
}

func (l lateStream) GetMsg(
	ctx context.Context, seq uint64, o ...jetstream.GetMsgOpt,
) (*jetstream.RawStreamMsg, error) {
	if l.left.Add(-1) >= 0 {
		return nil, jetstream.ErrMsgNotFound
	}
	return l.Stream.GetMsg(ctx, seq, o...)
}

// A server that is late loses no event. Events that an operator has purged are a line in the
// timeline.
func TestKeptLateServer(t *testing.T) {
	s := natsServer(t, nil)
	b := startKeeping(t, "b", s.ClientURL(), Keep{})
	sb, _ := b.session("sb")
	left := &atomic.Int32{}
	b.mu.Lock()
	b.js = lateServer{b.js, left}
	b.mu.Unlock()
	a := startKeeping(t, "a", s.ClientURL(), allBuilds)
	b.hasPlace("a", "sb")
	left.Store(3)
	a.tell(1, 3)
	awaitEvents(t, sb, numbers(1, 3))
	if isTold(sb, "missing") {
		t.Error("the session is told that events are missing, and has all")
	}
	left.Store(1000)
	a.tell(4, 5)
	until(t, "b has asked", func() bool { return left.Load() < 1000 })
	stream, err := a.js.Stream(t.Context(), "tapgw_a")
	if err == nil {
		err = stream.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	left.Store(0)
	until(t, "the gap is told", func() bool {
		return isTold(sb, "2 events of the streams that last of gateway a")
	})
	a.tell(6, 6)
	awaitEvents(t, sb, numbers(1, 3)+" 6")
}
