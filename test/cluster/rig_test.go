//go:build e2e && linux

// Package cluster runs gateways of several machines as processes of this one, with the NATS servers
// between them, and takes some of them away.
package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
	"tapgw/providers"
)

var bin string // the directory of the binaries under test

func TestMain(m *testing.M) {
	if options := os.Getenv(partVariable); options != "" {
		playPart(options)
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tapgw-cluster-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin = dir
	build := exec.Command("go", "build", "-o", dir+"/", "tapgw/cmd/tapgw", "tapgw/cmd/tapctl")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// process is a process that the test may kill, freeze and start again.
type process struct {
	t     testing.TB
	start func() *exec.Cmd
	cmd   *exec.Cmd
	ended chan struct{}
}

func (p *process) run() {
	p.t.Helper()
	p.cmd = p.start()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	p.ended = ended
	cmd := p.cmd
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
}

func (p *process) signal(s syscall.Signal) {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// freePorts finds ports that were free a moment ago.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}

// natsNode is a NATS server in a process of its own.
type natsNode struct {
	process
	url string
}

// natsNodes starts a cluster of NATS servers.
func natsNodes(t testing.TB, n int) []*natsNode {
	t.Helper()
	ports := freePorts(t, 2*n)
	nodes := make([]*natsNode, n)
	for i := range nodes {
		o := natsOptions{Name: fmt.Sprint("n", i), Port: ports[i], ClusterPort: ports[n+i],
			Dir: t.TempDir()}
		for j := range n {
			if j != i {
				o.Routes = append(o.Routes, ports[n+j])
			}
		}
		node := &natsNode{url: fmt.Sprintf("nats://127.0.0.1:%d", o.Port)}
		node.process = process{t: t, start: func() *exec.Cmd {
			cmd := part("nats", o)
			in, err := cmd.StdinPipe() // which ends with the test
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = in.Close() })
			return cmd
		}}
		node.run()
		t.Cleanup(func() { node.signal(syscall.SIGCONT); node.kill() })
		nodes[i] = node
		until(t, "a NATS server listens", func() bool {
			c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)),
				time.Second)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
	return nodes
}

// machine is a gateway with a home of its own, as one on a machine of its own has.
type machine struct {
	process
	name, home string
	url        string
	gw         *client.Client
}

// newMachine starts a gateway. config is what [cluster] has beside urls and name.
func newMachine(t testing.TB, name string, urls []string, config string) *machine {
	t.Helper()
	m := &machine{name: name, home: t.TempDir()}
	quoted := make([]string, len(urls))
	for i, u := range urls {
		quoted[i] = strconv.Quote(u)
	}
	m.write("tapgw.toml", fmt.Sprintf("listen = \"127.0.0.1:%d\"\nmax_connections = 1000\n\n"+
		"[cluster]\nurls = [%s]\nname = %q\n%s\n", freePorts(t, 1)[0], strings.Join(quoted, ", "),
		name, config), t)
	m.process = process{t: t, start: func() *exec.Cmd {
		return m.command("tapgw", "serve", "--config", filepath.Join(m.home, "tapgw.toml"))
	}}
	m.boot()
	t.Cleanup(func() { m.signal(syscall.SIGCONT); m.kill() })
	return m
}

func (m *machine) write(file, text string, t testing.TB) {
	t.Helper()
	path := filepath.Join(m.home, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, program), args...)
	cmd.Env = append(os.Environ(), "HOME="+m.home, "COPILOT_HOME="+m.home,
		"XDG_CONFIG_HOME="+m.home, "TAPGW_CONFIG=", "TAP_GATEWAY_URL=", "TAP_ADMIN_TOKEN=",
		"TAP_PROVIDER_TOKEN=")
	return cmd
}

// boot starts the gateway and waits until it is ready.
func (m *machine) boot() {
	m.t.Helper()
	_ = os.Remove(filepath.Join(m.home, "extensions", "tap", "gateway.json"))
	m.run()
	var info struct{ URL string }
	until(m.t, "gateway "+m.name+" is ready", func() bool {
		data, err := os.ReadFile(filepath.Join(m.home, "extensions", "tap", "gateway.json"))
		return err == nil && json.Unmarshal(data, &info) == nil
	})
	m.url = info.URL
	gw, err := client.New(client.Options{URL: m.url, Token: m.token(".admin-token")})
	if err != nil {
		m.t.Fatal(err)
	}
	m.gw = gw
}

func (m *machine) token(file string) string {
	data, err := os.ReadFile(filepath.Join(m.home, "extensions", "tap", file))
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// tapctl runs tapctl at the gateway and returns what it prints, and its exit code.
func (m *machine) tapctl(args ...string) (out string, code int) {
	m.t.Helper()
	cmd := m.command("tapctl", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		m.t.Fatal(err)
	}
	return stdout.String() + stderr.String(), cmd.ProcessState.ExitCode()
}

func (m *machine) session(label string) string {
	m.t.Helper()
	id, err := m.gw.Start(m.t.Context(), adminapi.StartRequest{Host: "local", CWD: "/",
		Label: label})
	if err != nil {
		m.t.Fatal(err)
	}
	return id
}

// cluster is what the gateway sees of the cluster.
func (m *machine) cluster() adminapi.Cluster {
	state, err := m.gw.Cluster(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return state
}

func (m *machine) sees(other *machine) bool {
	for _, g := range m.cluster().Gateways {
		if g.Name == other.name && g.Reachable && g.State == adminapi.GatewayUp {
			return true
		}
	}
	return false
}

// provide runs a provider at the gateway until the test ends.
func (m *machine) provide(name string, add func(p *providers.Provider)) {
	m.t.Helper()
	p := providers.New(name, &providers.Options{
		URL: m.url, TokenFile: filepath.Join(m.home, "extensions", "tap", ".admin-token"),
		Session: providers.AllSessions, Logger: slog.New(slog.DiscardHandler),
	})
	add(p)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx)
	}()
	m.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// until waits for a condition, for as long as a busy machine may need.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}
