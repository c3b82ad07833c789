package supervisor

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/server"
	"tapgw/providers"
)

// patience bounds every wait, against hangs.
const patience = 60 * time.Second

// This program is its own provider: CHILD selects its behaviour.
func TestMain(m *testing.M) {
	if mode := os.Getenv("CHILD"); mode != "" {
		child(mode)
		return
	}
	goleak.VerifyTestMain(m)
}

// child connects to the test, which sees by the connection when it ends, and then behaves by its
// mode.
func child(mode string) {
	heart, err := net.Dial("tcp", os.Getenv("HEART"))
	if err != nil {
		fmt.Println("no heart:", err)
		os.Exit(9)
	}
	fmt.Fprintf(heart, "%s %d\n", mode, os.Getpid())
	told := bufio.NewReader(heart)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	tool := os.Getenv("TOOL")
	var p *providers.Provider
	o := &providers.Options{}
	if tool == "" {
		tool = "t"
	}
	switch mode {
	case "start": // crash at start
		fmt.Println("it is too much")
		os.Exit(3)
	case "bound": // crash when bound
		o.OnBound = func(context.Context, providers.Binding) { os.Exit(4) }
	case "fork":
		other := exec.Command(os.Args[0])
		other.Env = append(os.Environ(), "CHILD=orphan")
		if err := other.Start(); err != nil {
			fmt.Println(err)
			os.Exit(9)
		}
	case "orphan":
		signal.Ignore(syscall.SIGTERM)
		_, _ = told.ReadString('\n')
		return
	case "alone": // can't run twice
		l, err := net.Listen("unix", os.Getenv("SOCKET"))
		if err != nil {
			fmt.Println("its port is taken")
			os.Exit(7)
		}
		defer func() { _ = l.Close() }()
	case "late":
		_, _ = told.ReadString('\n')
	case "stubborn":
		ctx = context.Background()
		signal.Ignore(syscall.SIGTERM)
	case "flood":
		go func() {
			line := strings.Repeat("x", 5000) + "\n"
			for {
				_, _ = os.Stdout.WriteString(line)
			}
		}()
	}
	if os.Getenv("ALL") != "" {
		o.Session = providers.AllSessions
	}
	p = providers.New("child", o)
	if mode == "guard" {
		_, _ = p.Gate(ctx, providers.Match{Tool: "shell"},
			func(context.Context, providers.GateCall) (providers.Decision, error) {
				return providers.Deny("guarded"), nil
			})
	}
	about := "a tool" + os.Getenv("VERSION")
	if about == "a toolpid" {
		about = fmt.Sprint("instance ", os.Getpid())
	}
	var first sync.Once
	providers.AddTool(p, tool, about, func(context.Context, struct{}) (string, error) {
		switch mode {
		case "call": // crash in mid-call
			os.Exit(5)
		case "slow":
			fmt.Fprintln(heart, "called")
			_, _ = told.ReadString('\n')
		case "once":
			slow := false
			first.Do(func() { slow = true })
			if slow {
				fmt.Fprintln(heart, "called")
				_, _ = told.ReadString('\n')
			}
		}
		return fmt.Sprint(os.Getpid(), " ", len(os.Environ()), " ", os.Getenv("SECRET"),
			os.Getenv("VERSION")), nil
	})
	if err := p.Run(ctx); err != nil {
		fmt.Println(err)
		os.Exit(6)
	}
	if mode == "stubborn" {
		select {}
	}
}

// host is a session's, and tells of its tools.
type host struct {
	mu    sync.Mutex
	lists [][]string
	last  []gateway.Tool
	came  chan struct{} // holds one
}

func (h *host) SetTools(_ context.Context, _ uint64, tools []gateway.Tool) error {
	names := []string{}
	for _, t := range tools {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	h.mu.Lock()
	h.lists, h.last = append(h.lists, names), tools
	h.mu.Unlock()
	select {
	case h.came <- struct{}{}:
	default:
	}
	return nil
}

func (h *host) Send(context.Context, gateway.Prompt) error          { return nil }
func (h *host) Log(adminapi.LogLevel, string)                       {}
func (h *host) Interrupt(context.Context, string) ([]string, error) { return nil, nil }
func (h *host) Close(context.Context, string) error                 { return nil }

// beat is a child's connection to the test.
type beat struct {
	mode, pid string
	said      chan string // lines; closed at the child's end
	conn      net.Conn
}

// rig is a gateway with a supervisor on a directory of provider files.
type rig struct {
	t     *testing.T
	g     *gateway.Gateway
	s     *Supervisor
	dir   string // of the provider files
	heart string
	beats chan *beat
}

func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	work := t.TempDir()
	r := &rig{
		t: t, g: gateway.New(gateway.Options{}), dir: filepath.Join(work, "providers"),
		beats: make(chan *beat, 100_000),
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(work, "tapgw.toml")
	if err := os.WriteFile(named, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := configs.Find(work, named)
	if err != nil {
		t.Fatal(err)
	}
	web := server.New(server.Options{Gateway: r.g, Status: func() adminapi.Status {
		return adminapi.Status{}
	}})
	if err := web.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve() }()
	r.listen()
	o := Options{Gateway: r.g, Files: files, TokenDir: filepath.Join(work, "state", "providers"),
		Dial: web.Dial}
	for _, c := range change {
		c(&o)
	}
	r.s = New(o)
	r.s.Open(web.URL())
	t.Cleanup(func() {
		r.s.Quiesce()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := web.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		r.s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r
}

// listen takes the children's connections. At the end of the test all must be closed.
func (r *rig) listen() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.heart = l.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { r.hear(c) })
		}
	})
	r.t.Cleanup(func() {
		_ = l.Close()
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(patience):
			r.t.Error("a process that was started lives on, want its end")
		}
	})
}

func (r *rig) hear(c net.Conn) {
	defer func() { _ = c.Close() }()
	lines := bufio.NewScanner(c)
	if !lines.Scan() {
		return
	}
	mode, pid, _ := strings.Cut(lines.Text(), " ")
	b := &beat{mode, pid, make(chan string, 100), c}
	defer close(b.said)
	r.beats <- b
	for lines.Scan() {
		b.said <- lines.Text()
	}
}

// child waits for the next process to come up.
func (r *rig) child() *beat {
	r.t.Helper()
	select {
	case b := <-r.beats:
		return b
	case <-time.After(patience):
		r.t.Fatal("no process comes up, want one")
		return nil
	}
}

// ended waits for a process to end.
func (r *rig) ended(b *beat) {
	r.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case _, ok := <-b.said:
			if !ok {
				return
			}
		case <-timeout:
			r.t.Fatalf("process %s (%s) does not end, want its end", b.pid, b.mode)
		}
	}
}

func (b *beat) isAlive() bool {
	select {
	case _, ok := <-b.said:
		return ok
	default:
		return true
	}
}

// eventually waits until a check returns nil. It polls, for states that no event announces; see
// [rig.until] for tools.
func (r *rig) eventually(check func() error) {
	r.t.Helper()
	timeout, tick := time.After(patience), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			r.t.Fatal(err)
		}
	}
}

// session starts a session.
func (r *rig) session(id string) (*gateway.Session, *host) {
	r.t.Helper()
	h := &host{came: make(chan struct{}, 1)}
	s, err := r.g.Register(
		gateway.SessionSpec{ID: id, Label: "label-" + id, CWD: "/w/" + id},
		gateway.HostInfo{Kind: "test", Send: true, LiveTools: true}, h,
	)
	if err != nil {
		r.t.Fatal(err)
	}
	return s, h
}

// has waits until the session's tools are these.
func (r *rig) has(h *host, want ...string) {
	r.t.Helper()
	r.until(
		h, fmt.Sprint("tools ", want), func(list []string, _ []gateway.Tool) bool {
			return slices.Equal(list, want)
		},
	)
}

// until waits until a session has the wanted tools.
func (r *rig) until(h *host, want string, is func([]string, []gateway.Tool) bool) {
	r.t.Helper()
	timeout := time.After(patience)
	for {
		h.mu.Lock()
		var now []string
		if n := len(h.lists); n > 0 {
			now = h.lists[n-1]
		}
		ok := is(now, h.last)
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-h.came:
		case <-timeout:
			r.t.Fatalf("the session has %q, want %s; faults %v", now, want, r.s.Faults())
		}
	}
}

// put writes a provider file; file makes the text of one whose process is ours.
func (r *rig) put(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name+".toml"), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) file(mode string, more ...string) string {
	text := fmt.Sprintf("kind = \"command\"\nname = \"child\"\ncommand = [%q]\n", os.Args[0])
	env := []string{"CHILD=" + mode, "HEART=" + r.heart, "GORACE=atexit_sleep_ms=0"}
	for _, m := range more {
		if strings.Contains(m, " = ") {
			text += m + "\n"
		} else {
			env = append(env, m)
		}
	}
	text += "[env]\n"
	for _, e := range env {
		k, v, _ := strings.Cut(e, "=")
		text += fmt.Sprintf("%s = %q\n", k, v)
	}
	return text
}

func call(s *gateway.Session, tool string) gateway.Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.CallTool(ctx, gateway.Call{Name: tool})
}

// logged are a provider's lines, those that are not its own with who they are of.
func logged(s *Supervisor, name string) (texts []string, err error) {
	lines, _, err := s.Lines(name, 0)
	for _, l := range lines {
		if l.Source == fromGateway {
			l.Message = fromGateway + ": " + l.Message
		}
		texts = append(texts, l.Message)
	}
	return texts, err
}
