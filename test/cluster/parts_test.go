//go:build e2e && linux

package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"tapgw/internal/cluster"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// partVariable makes the test binary a part of a test in a process of its own: its value is the
// part's name and its options. A part ends when its input does.
const partVariable = "TAPGW_TEST_PART"

var parts = map[string]func(options string) error{
	"nats": with(serveNATS), "provider": with(runProvider), "gateway": with(runGateway),
	"bare": with(runBare), "bare end": with(runBareEnd), "bare caller": with(runBareCaller),
}

// with reads the options of a part.
func with[Options any](run func(Options) error) func(options string) error {
	return func(options string) error {
		var o Options
		if err := json.Unmarshal([]byte(options), &o); err != nil {
			return err
		}
		return run(o)
	}
}

func playPart(text string) {
	name, options, _ := strings.Cut(text, "=")
	if err := parts[name](options); err != nil {
		fmt.Fprintf(os.Stderr, "part %s: %v\n", name, err)
		os.Exit(1)
	}
}

// part is the command of a part.
func part(name string, options any) *exec.Cmd {
	data, err := json.Marshal(options)
	if err != nil {
		panic(err) // they are structs of texts and numbers
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), partVariable+"="+name+"="+string(data))
	cmd.Stderr = os.Stderr
	return cmd
}

// talking is a part that is asked for rounds of calls by lines.
type talking struct {
	process
	in  *bufio.Writer
	out *bufio.Reader
}

// startPart starts a part and waits until it is ready.
func startPart(t testing.TB, name string, options any) (p *talking, line string) {
	t.Helper()
	p = launchPart(t, name, options)
	return p, p.line()
}

func launchPart(t testing.TB, name string, options any) *talking {
	t.Helper()
	p := &talking{}
	p.process = process{t: t, start: func() *exec.Cmd {
		cmd := part(name, options)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.in, p.out = bufio.NewWriter(in), bufio.NewReader(out)
		t.Cleanup(func() { _ = in.Close(); <-p.ended })
		return cmd
	}}
	p.run()
	return p
}

func (p *talking) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("a part has ended: %v", err)
	}
	return strings.TrimSpace(line)
}

// round lets the part make calls from workers at once.
func (p *talking) round(workers, calls int) (r round) {
	p.t.Helper()
	_, _ = fmt.Fprintln(p.in, workers, calls)
	_ = p.in.Flush()
	if err := json.Unmarshal([]byte(p.line()), &r); err != nil {
		p.t.Fatal(err)
	}
	if r.Error != "" {
		p.t.Fatal(r.Error)
	}
	return r
}

// round is what a round of calls took.
type round struct {
	Calls    int
	Wall     time.Duration
	P50, P99 time.Duration
	Error    string
}

func (r round) perSecond() float64 { return float64(r.Calls) / r.Wall.Seconds() }

// obey says that the part is ready, and makes the calls that its input asks for, until that ends.
func obey(call func(i int) error) error {
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var workers, calls int
		if _, err := fmt.Sscan(lines.Text(), &workers, &calls); err != nil {
			return err
		}
		data, err := json.Marshal(makeCalls(workers, calls, call))
		if err != nil {
			return err
		}
		fmt.Println(string(data))
	}
	return lines.Err()
}

func makeCalls(workers, calls int, call func(i int) error) round {
	var (
		next  atomic.Int64
		work  sync.WaitGroup
		fault atomic.Pointer[string]
		took  = make([]time.Duration, calls)
	)
	began := time.Now()
	for range workers {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < calls &&
				fault.Load() == nil; i = int(next.Add(1)) - 1 {
				began := time.Now()
				if err := call(i); err != nil {
					text := err.Error()
					fault.Store(&text)
				}
				took[i] = time.Since(began)
			}
		})
	}
	work.Wait()
	if text := fault.Load(); text != nil {
		return round{Error: *text}
	}
	wall := time.Since(began)
	slices.Sort(took)
	return round{Calls: calls, Wall: wall, P50: took[calls/2], P99: took[calls*99/100]}
}

// waitForEnd prints the line of a part that is ready, and waits until its input ends.
func waitForEnd(line string) error {
	fmt.Println(line)
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	return nil
}

// natsOptions are the options of a NATS server in a process of its own.
type natsOptions struct {
	Name        string
	Port        int
	ClusterPort int
	Routes      []int // ports of the others
	Dir         string
}

// serveNATS is a NATS server until its input ends.
func serveNATS(o natsOptions) error {
	so := &server.Options{ServerName: o.Name, Host: "127.0.0.1", Port: o.Port, JetStream: true,
		StoreDir: o.Dir, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 256 << 20, NoSigs: true,
		NoLog: true, PingInterval: 2 * time.Second, MaxPingsOut: 2}
	if len(o.Routes) > 0 {
		so.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: o.ClusterPort,
			NoAdvertise: true}
		urls := make([]string, len(o.Routes))
		for i, port := range o.Routes {
			urls[i] = fmt.Sprintf("nats://127.0.0.1:%d", port)
		}
		so.Routes = server.RoutesFromStr(strings.Join(urls, ","))
	}
	s, err := server.NewServer(so)
	if err != nil {
		return err
	}
	s.Start()
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	s.Shutdown()
	return nil
}

// barePart are the options of the parts of the floor: processes that pass on as many bytes as a
// call has, and know nothing of calls.
type barePart struct {
	URL string // of NATS
	// the address of a part to which each request goes on; "" to answer it, or to ask through NATS
	Next string
}

const bareSize = 190

// runBare answers requests through NATS, or passes them on, as the gateway of a provider does.
func runBare(o barePart) error {
	nc, err := nats.Connect(o.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	answer := func(m *nats.Msg) { _ = m.Respond(m.Data) }
	if o.Next != "" {
		next, err := net.Dial("tcp", o.Next)
		if err != nil {
			return err
		}
		defer func() { _ = next.Close() }()
		answer = func(m *nats.Msg) {
			if askNext(next, m.Data) == nil {
				_ = m.Respond(m.Data)
			}
		}
	}
	if _, err := nc.Subscribe("bare", answer); err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	return waitForEnd("ready")
}

func askNext(next net.Conn, data []byte) error {
	if _, err := next.Write(data); err != nil {
		return err
	}
	_, err := io.ReadFull(next, data)
	return err
}

// runBareEnd answers requests on connections, as a provider does. It says its address.
func runBareEnd(barePart) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				data := make([]byte, bareSize)
				for {
					if _, err := io.ReadFull(c, data); err != nil {
						return
					}
					if _, err := c.Write(data); err != nil {
						return
					}
				}
			}()
		}
	}()
	return waitForEnd(l.Addr().String())
}

// runBareCaller makes requests through NATS, or on a connection.
func runBareCaller(o barePart) error {
	if o.Next != "" {
		next, err := net.Dial("tcp", o.Next)
		if err != nil {
			return err
		}
		defer func() { _ = next.Close() }()
		data := make([]byte, bareSize)
		return obey(func(int) error { return askNext(next, data) })
	}
	nc, err := nats.Connect(o.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	return obey(func(int) error {
		_, err := nc.Request("bare", make([]byte, bareSize), time.Minute)
		return err
	})
}

// providerPart are the options of providers that serve all sessions, each with a tool
// "NAME-NUMBER".
type providerPart struct {
	URL, Token, Name string
	Count            int
}

// answerTo is the answer to a call; nil for other messages.
func answerTo(data []byte) []byte {
	var m struct{ Type, ID string }
	if json.Unmarshal(data, &m) != nil || m.Type != "tool.call" {
		return nil
	}
	return resultOf(m.ID)
}

func resultOf(id string) []byte {
	return fmt.Appendf(nil,
		`{"type":"tool.result","id":%q,"data":"session.go:128: the quick brown fox jumps"}`, id)
}

func helloOf(name string, i int) string {
	name = fmt.Sprintf("%s-%d", name, i)
	return fmt.Sprintf(
		`{"type":"hello","name":%q,"protocolVersion":2,"session":"all","tools":[{"name":%[1]q,`+
			`"description":"d","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}]}`, name)
}

func runProvider(o providerPart) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range o.Count {
		ws, _, err := websocket.Dial(ctx, o.URL, nil)
		if err != nil {
			return err
		}
		ws.SetReadLimit(-1)
		send := func(text string) error {
			return ws.Write(ctx, websocket.MessageText, []byte(text))
		}
		if err := send(fmt.Sprintf(`{"type":"auth","token":%q}`, o.Token)); err != nil {
			return err
		}
		if _, _, err := ws.Read(ctx); err != nil { // the sessions
			return err
		}
		if err := send(helloOf(o.Name, i)); err != nil {
			return err
		}
		go func() {
			for {
				_, data, err := ws.Read(ctx)
				if err != nil {
					return
				}
				if answer := answerTo(data); answer != nil {
					_ = ws.Write(ctx, websocket.MessageText, answer)
				}
			}
		}()
	}
	return waitForEnd("ready")
}

// gatewayPart are the options of a gateway that has its sessions and providers in its own process,
// so that NATS and the two gateways are all that runs.
type gatewayPart struct {
	URL, Name, Other    string
	Sessions, Providers int
	Tools               int // that its sessions wait for
}

func runGateway(o gatewayPart) error {
	debug.SetGCPercent(300) // as tapgw serve does while it is busy
	g := gateway.New(gateway.Options{
		Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}},
	})
	joined, err := cluster.Join(cluster.Options{Gateway: g, Log: slog.New(slog.DiscardHandler),
		Name: o.Name, Share: []string{"*"},
		Admit: map[string]gateway.Trust{o.Other: gateway.TrustProject}},
		cluster.Server{URLs: []string{o.URL}})
	if err != nil {
		return err
	}
	defer joined.Close()
	ctx := context.Background()
	sessions := make([]*gateway.Session, o.Sessions)
	for i := range sessions {
		s, err := g.Start(ctx, gateway.StartRequest{Host: gateway.HostLocal, CWD: "/",
			Label: fmt.Sprint("s", i)})
		if err != nil {
			return err
		}
		sessions[i] = s
	}
	for i := range o.Providers {
		p := &inner{frames: make(chan []byte, 4096), listed: make(chan struct{}, 1)}
		p.conn = joined.Connect(p, gateway.ConnOptions{})
		go func() {
			for data := range p.frames {
				p.conn.Receive(data)
			}
		}()
		p.frames <- fmt.Appendf(nil, `{"type":"auth","token":%q}`, g.AdminToken())
		<-p.listed
		p.frames <- []byte(helloOf("p", i))
	}
	for _, s := range sessions {
		for len(s.Tools()) < o.Tools {
			<-time.After(time.Millisecond)
		}
	}
	if len(sessions) == 0 {
		return waitForEnd("ready")
	}
	args := protocol.Raw(`{"path":"internal/gateway/session.go"}`)
	return obey(func(i int) error {
		out := sessions[i%len(sessions)].CallTool(ctx,
			gateway.Call{Name: fmt.Sprint("p-", i/len(sessions)%o.Tools), Args: args})
		if out.Failed() {
			return fmt.Errorf("%s: %s", out.ErrorCode, out.Error)
		}
		return nil
	})
}

// inner is a provider in the process of its gateway.
type inner struct {
	conn   *cluster.Conn
	frames chan []byte
	listed chan struct{}
}

// Send implements [gateway.Peer].
func (p *inner) Send(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.ToolCall:
		p.frames <- resultOf(m.ID)
	case *protocol.Sessions:
		if len(m.Active) > 0 {
			select {
			case p.listed <- struct{}{}:
			default:
			}
		}
	}
}

// Flush implements [gateway.Peer].
func (p *inner) Flush() {}

// Close implements [gateway.Peer].
func (p *inner) Close(protocol.CloseCode, string) {}
