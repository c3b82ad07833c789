package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/taptest/membus"
)

// natsServer starts a NATS server in this process, on a port of its own. change may be nil.
func natsServer(t testing.TB, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{ServerName: "n", Host: "127.0.0.1", Port: -1, JetStream: true,
		StoreDir: t.TempDir(), JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 64 << 20,
		NoSigs: true, NoLog: true}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	return s
}

// joined is a gateway in a cluster over NATS.
type joined struct {
	t       testing.TB
	gateway *gateway.Gateway
	*Joined
}

func join(t testing.TB, name, url string, change func(*Options, *Server)) *joined {
	t.Helper()
	g := gateway.New(gateway.Options{
		Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}},
	})
	o := Options{Gateway: g, Log: slog.New(slog.DiscardHandler), Version: "1.2.3", Name: name,
		Share: []string{"*"}, Admit: map[string]gateway.Trust{}}
	for _, other := range []string{"a", "b"} {
		if other != name {
			o.Admit[other] = gateway.TrustProject
		}
	}
	s := Server{URLs: []string{url}}
	if change != nil {
		change(&o, &s)
	}
	j, err := Join(o, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		g.Drain(ctx)
		j.Close()
	})
	return &joined{t, g, j}
}

// until waits for a condition, for as long as a busy machine may need.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

func (j *joined) reaches(name string) bool {
	return slices.ContainsFunc(j.Members(), func(m adminapi.ClusterGateway) bool {
		return m.Name == name && m.Reachable
	})
}

// answering is a provider that answers each call with the result of answer.
type answering struct {
	conn   *Conn
	answer func(*protocol.ToolCall) string
	got    chan protocol.Message
	todo   chan string
}

func connectAnswering(t testing.TB, j *joined, answer func(*protocol.ToolCall) string) *answering {
	p := &answering{answer: answer, got: make(chan protocol.Message, 1000),
		todo: make(chan string, 1000)}
	p.conn = j.Connect(p, gateway.ConnOptions{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for text := range p.todo {
			p.conn.Receive([]byte(text))
		}
		p.conn.Closed()
	}()
	t.Cleanup(func() {
		close(p.todo)
		<-done
	})
	p.todo <- fmt.Sprintf(`{"type":"auth","token":%q}`, j.gateway.AdminToken())
	return p
}

func (p *answering) Send(m protocol.Message) {
	if c, ok := m.(*protocol.ToolCall); ok && p.answer != nil {
		p.todo <- fmt.Sprintf(`{"type":"tool.result","id":%q,"data":%s}`, c.ID, p.answer(c))
		return
	}
	select {
	case p.got <- m:
	default:
	}
}

func (p *answering) Flush()                           {}
func (p *answering) Close(protocol.CloseCode, string) {}

func awaitMessage[M protocol.Message](t *testing.T, p *answering) M {
	t.Helper()
	for {
		select {
		case m := <-p.got:
			if m, ok := m.(M); ok {
				return m
			}
		case <-time.After(30 * time.Second):
			var none M
			t.Fatalf("no %T came", none)
		}
	}
}

func startSession(t testing.TB, j *joined, label string) *gateway.Session {
	t.Helper()
	s, err := j.gateway.Start(t.Context(), gateway.StartRequest{Host: gateway.HostLocal, CWD: "/",
		Label: label})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Results of 5 MiB go through a NATS server that takes messages of 64 KiB, and lists include the
// other gateway's shared entries.
func TestOverNATS(t *testing.T) {
	s := natsServer(t, func(o *server.Options) { o.MaxPayload = 64 << 10 })
	a, b := join(t, "a", s.ClientURL(), nil), join(t, "b", s.ClientURL(), nil)
	session := startSession(t, a, "work")
	until(t, "they reach each other", func() bool { return a.reaches("b") && b.reaches("a") })
	large := `"` + strings.Repeat("x", 5<<20-100) + `"`
	p := connectAnswering(t, b, func(*protocol.ToolCall) string { return large })
	awaitSession(t, p, session.ID())
	p.todo <- fmt.Sprintf(helloTool, "all")
	until(t, "the tool is there", func() bool { return len(session.Tools()) == 1 })
	o := session.Execute(t.Context(), gateway.Call{Name: "t"})
	if o.Failed() || string(o.Data) != large {
		t.Errorf("%d bytes, error %q, want %d bytes", len(o.Data), o.Error, len(large))
	}
	state := a.State(t.Context())
	if len(state.Gateways) != 1 || state.Gateways[0].Version != "1.2.3" || !state.Connected ||
		state.Fault != "" {
		t.Errorf("the cluster of a: %+v, want b, version 1.2.3, and no fault", state)
	}
	theirs := b.State(t.Context()).Sessions
	if len(theirs) != 1 || theirs[0].Gateway != "a" || theirs[0].Label != "work" ||
		theirs[0].CWD != "" {
		t.Errorf("sessions that b sees: %+v, want that of a, without its directory", theirs)
	}
}

func awaitSession(t testing.TB, p *answering, id string) {
	t.Helper()
	for {
		var list []protocol.SessionInfo
		select {
		case m := <-p.got:
			switch m := m.(type) {
			case *protocol.Sessions:
				list = m.Active
			case *protocol.SessionsUpdated:
				list = m.Active
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("session %s was never listed", id)
		}
		if slices.ContainsFunc(list, func(s protocol.SessionInfo) bool { return s.ID == id }) {
			return
		}
	}
}

// A NATS server that ends and comes back has forgotten the registry. It is made again, and the
// gateways meet again.
func TestServerComesBack(t *testing.T) {
	s := natsServer(t, nil)
	url := s.ClientURL()
	port := s.Addr().(*net.TCPAddr).Port
	a, b := join(t, "a", url, nil), join(t, "b", url, nil)
	until(t, "they reach each other", func() bool { return a.reaches("b") && b.reaches("a") })
	s.Shutdown()
	s.WaitForShutdown()
	until(t, "a says that it is alone", func() bool {
		return strings.Contains(a.Fault(), "not connected") && !a.reaches("b")
	})
	natsServer(t, func(o *server.Options) { o.Port = port })
	until(t, "they reach each other again", func() bool {
		return a.reaches("b") && b.reaches("a") && a.Fault() == ""
	})
}

// rights are the users of a NATS server that lets each gateway speak for itself only.
func rights(names ...string) func(*server.Options) {
	return func(o *server.Options) {
		for _, name := range names {
			o.Users = append(o.Users,
				&server.User{Username: name, Password: "secret-" + name,
					Permissions: permissions(name)})
		}
		o.Users = append(o.Users, &server.User{Username: "any", Password: "secret-any"})
	}
}

func permissions(name string) *server.Permissions {
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{"tap.*." + name + ".>",
			"$KV.tapgw." + name,
			"$JS.API.STREAM.INFO.KV_tapgw", "$JS.API.STREAM.CREATE.KV_tapgw",
			"$JS.API.CONSUMER.CREATE.KV_tapgw.>",
			"$JS.API.CONSUMER.DELETE.KV_tapgw.>", "$JS.API.CONSUMER.INFO.KV_tapgw.>",
			"$JS.API.INFO",
			"$JS.FC.>", "$JS.ACK.>", "$JS.API.STREAM.CREATE.tapgw_" + name,
			"$JS.API.STREAM.UPDATE.tapgw_" + name, "$JS.API.STREAM.INFO.tapgw_a",
			"$JS.API.STREAM.MSG.GET.tapgw_a", "$JS.API.STREAM.INFO.tapgw_b",
			"$JS.API.STREAM.MSG.GET.tapgw_b"}},
		Subscribe: &server.SubjectPermission{Allow: []string{"tap." + name + ".>",
			"_INBOX." + name + ".>"}},
	}
}

func withUser(url, name string) string {
	return strings.Replace(url, "nats://", "nats://"+name+":secret-"+name+"@", 1)
}

// Users with the rights of docs/cluster.md suffice, and can't speak in another's name.
func TestRights(t *testing.T) {
	s := natsServer(t, rights("a", "b"))
	a := join(t, "a", withUser(s.ClientURL(), "a"), nil)
	b := join(t, "b", withUser(s.ClientURL(), "b"), nil)
	until(t, "they reach each other", func() bool { return a.reaches("b") && b.reaches("a") })
	status := func(user, name string) string {
		lines := []string{}
		for _, f := range Check(t.Context(), CheckOptions{Name: name, Admit: []string{"b", "c"},
			Server: Server{URLs: []string{withUser(s.ClientURL(), user)}}}) {
			check, _, _ := strings.Cut(f.Check, " nats://")
			lines = append(lines, check+": "+f.Status)
		}
		return strings.Join(lines, ", ")
	}
	for _, test := range []struct{ user, name, want string }{
		{"a", "a",
			"server: ok, may hear: ok, may speak: ok, speaks for itself only: ok, hears its own only: ok, " +
				"registry: ok, gateway b: ok, gateway c: warn"},
		{"any", "a",
			"server: ok, may hear: ok, may speak: ok, speaks for itself only: warn, hears its own only: warn, " +
				"registry: ok, gateway b: ok, gateway c: warn"},
		{"a", "x",
			"server: ok, may hear: fail, may speak: fail, speaks for itself only: ok, hears its own only: ok, " +
				"registry: fail"},
		{"none", "a", "server: fail"},
	} {
		if got := status(test.user, test.name); got != test.want {
			t.Errorf("user %s as gateway %s:\n got %s\nwant %s", test.user, test.name, got,
				test.want)
		}
	}
}

// A gateway may use an nkey, whose seed is in a file.
func TestNKey(t *testing.T) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := pair.PublicKey()
	seed, _ := pair.Seed()
	file := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	s := natsServer(t, func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: public, Permissions: permissions("a")}}
	})
	a := join(t, "a", s.ClientURL(), func(_ *Options, s *Server) { s.NKey = file })
	until(t, "it is connected", func() bool { return a.State(t.Context()).Fault == "" })
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]Server{
		"cluster.tls_ca:":                   {CA: filepath.Join(dir, "none")},
		"has no certificate":                {CA: empty},
		"cluster.tls_cert, cluster.tls_key": {Cert: empty, Key: empty},
		"cluster.nkey:":                     {NKey: empty},
	} {
		s.URLs = []string{"nats://127.0.0.1:1"}
		if _, err := Join(Options{Name: "a", Log: slog.New(slog.DiscardHandler)}, s); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

// The start of a gateway does not wait for servers that do not answer.
func TestStartWaitsForNoServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	began := time.Now()
	a := join(t, "a", "nats://"+silent.Addr().String(), nil)
	if took := time.Since(began); took > dialTimeout/2 {
		t.Errorf("joining took %s, want less than %s", took, dialTimeout/2)
	}
	if fault := a.Fault(); !strings.Contains(fault, "not connected") {
		t.Errorf("fault %q, want that it is not connected", fault)
	}
}

// A gateway that is silent is doubtful first, and then leaves the list within 15 s.
func TestDoubtfulThenGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, membus.New(1<<20), "a", nil)
		defer m.close()
		m.cluster.heard("b", Beat{Version: "1"})
		states := map[int]string{}
		for second := range 15 {
			states[second] = "gone"
			for _, other := range m.cluster.Members() {
				states[second] = other.State
			}
			time.Sleep(time.Second)
		}
		for second, want := range map[int]string{
			0: "up", 6: "up", 7: "doubtful", 11: "doubtful", 12: "gone", 14: "gone",
		} {
			if states[second] != want {
				t.Errorf("after %d s it is %s, want %s", second, states[second], want)
			}
		}
	})
}
