package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/rogpeppe/go-internal/testscript"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
	"tapgw/internal/daemon"
	"tapgw/internal/proc"
	"tapgw/internal/taptest"
)

// patience bounds the wait for another process.
const patience = 90 * time.Second

func TestMain(m *testing.M) {
	testscript.Main(taptest.LeakChecked{M: m}, map[string]func(){"tapgw": main})
}

// TestScripts runs the program as shells do.
func TestScripts(t *testing.T) { runScripts(t, "testdata/script", nil) }

func runScripts(t *testing.T, dir string, env map[string]string) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", filepath.Join(e.WorkDir, "user"))
			e.Setenv("COPILOT_HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("STATE", filepath.Join(e.WorkDir, "home", "extensions", "tap"))
			for _, name := range []string{
				"COPILOT_CLI_PATH", "XDG_CONFIG_HOME", "TAPGW_CONFIG", "TAP_MODEL_KEY", "NO_COLOR",
				"CLICOLOR_FORCE",
			} {
				e.Setenv(name, "")
			}
			// Under the race detector a program takes a second to end else.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			// No runtime that happens to be on this machine.
			path := filepath.SplitList(e.Getenv("PATH"))
			e.Setenv("TAPGW", filepath.Join(path[0], "tapgw"))
			path = slices.DeleteFunc(path, func(dir string) bool {
				_, err := os.Stat(filepath.Join(dir, "copilot"))
				return err == nil
			})
			e.Setenv("PATH", strings.Join(path, string(filepath.ListSeparator)))
			for name, value := range env {
				e.Setenv(name, value)
			}
			e.Values[background{}] = map[string]*process{}
			return os.MkdirAll(filepath.Join(e.WorkDir, "user"), 0o700)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":   taptest.Exits,
			"serve":   cmdServe,
			"start":   cmdStart,
			"signal":  cmdSignal,
			"ended":   cmdEnded,
			"waitlog": cmdWait(proc.Stderr),
			"waitout": cmdWait(proc.Stdout),
			"ensures": cmdEnsures,
			"gone":    cmdGone,
			"json":    cmdJSON,
			"session": cmdSession,
			"mute":    cmdMute,
			"mode":    cmdMode,
			"oneline": cmdOneLine,
			"cert":    cmdCert,
			"healthz": cmdHealthz,

			"tools":    cmdTools,
			"faults":   cmdFaults,
			"post":     cmdPost,
			"waitfile": cmdWaitFile,
			"asks":     cmdAsks,
			"times":    cmdTimes,
			"turn":     cmdTurn,
			"timeline": cmdTimeline,
			"calls":    cmdCalls,
			"terminate": func(ts *testscript.TestScript, _ bool, args []string) {
				pid, err := strconv.Atoi(args[0])
				ts.Check(err)
				ts.Check(syscall.Kill(pid, syscall.SIGTERM))
			},
		},
	})
}

// background is the key of a script's processes, by name.
type background struct{}

// process is a program that runs beside a script. Its lines are kept; line
// gives them away as they come.
type process struct {
	*proc.Process
	mu     sync.Mutex
	stdout []string
	stderr []string
	came   chan struct{} // holds one
}

func (p *process) lines(from proc.Stream) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if from == proc.Stdout {
		return slices.Clone(p.stdout)
	}
	return slices.Clone(p.stderr)
}

// await waits until a line of a stream matches, and returns it.
func (p *process) await(from proc.Stream, match *regexp.Regexp) (string, bool) {
	timeout := time.After(patience)
	find := func() (string, bool) {
		for _, line := range p.lines(from) {
			if match.MatchString(line) {
				return line, true
			}
		}
		return "", false
	}
	for {
		if line, ok := find(); ok {
			return line, true
		}
		select {
		case <-p.came:
		case <-p.Done():
			return find()
		case <-timeout:
			return "", false
		}
	}
}

func begin(ts *testscript.TestScript, name string, args ...string) *process {
	path := ""
	for dir := range strings.SplitSeq(ts.Getenv("PATH"), string(filepath.ListSeparator)) {
		if at := filepath.Join(dir, "tapgw"); path == "" {
			if _, err := os.Stat(at); err == nil {
				path = at
			}
		}
	}
	p := &process{came: make(chan struct{}, 1)}
	var env []string
	for _, v := range []string{
		"PATH", "HOME", "COPILOT_HOME", "TMPDIR", "TAPGW_CONFIG", "TAP_MODEL_KEY",
		"COPILOT_CLI_PATH", "GORACE",
	} {
		env = append(env, v+"="+ts.Getenv(v))
	}
	keep := func(from proc.Stream, line string) {
		p.mu.Lock()
		if from == proc.Stdout {
			p.stdout = append(p.stdout, line)
		} else {
			p.stderr = append(p.stderr, line)
		}
		p.mu.Unlock()
		select {
		case p.came <- struct{}{}:
		default:
		}
	}
	child, err := proc.Start(proc.Command{Path: path, Args: args, Dir: ts.MkAbs("."), Env: env,
		OnLine: keep})
	ts.Check(err)
	p.Process = child
	ts.Value(background{}).(map[string]*process)[name] = p
	ts.Defer(p.Stop)
	return p
}

// stderr returns what a process has printed to stderr.
func stderr(ts *testscript.TestScript, name string) string {
	return strings.Join(of(ts, name).lines(proc.Stderr), "\n")
}

func of(ts *testscript.TestScript, name string) *process {
	p := ts.Value(background{}).(map[string]*process)[name]
	if p == nil {
		ts.Fatalf("nothing was started as %s", name)
	}
	return p
}

// serve NAME [FLAG…] starts a gateway and waits until it prints where it is:
// NAME_URL, NAME_ADDR and NAME_PID.
func cmdServe(ts *testscript.TestScript, _ bool, args []string) {
	line := []string{"serve"}
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--listen") }) {
		line = append(line, "--listen=127.0.0.1:0")
	}
	ts.Check(taptest.LeaveOutTap(ts.MkAbs("."), args, cmp.Or(
		ts.Getenv("TAPGW_CONFIG"), filepath.Join(ts.Getenv("HOME"), ".config", "tapgw",
			"tapgw.toml"),
	)))
	p := begin(ts, args[0], append(line, args[1:]...)...)
	url, ok := p.await(proc.Stdout, regexp.MustCompile(`^wss?://.*:[1-9]\d*$`))
	if !ok {
		ts.Fatalf("serve %s printed %q; %q", args, p.lines(proc.Stdout), p.lines(proc.Stderr))
	}
	ts.Setenv(args[0]+"_URL", url)
	ts.Setenv(args[0]+"_ADDR", url[strings.Index(url, "://")+3:])
	ts.Setenv(args[0]+"_PID", strconv.Itoa(p.PID()))
}

// start NAME ARG… starts tapgw beside the script.
func cmdStart(ts *testscript.TestScript, _ bool, args []string) { begin(ts, args[0], args[1:]...) }

// signal NAME TERM|INT|KILL|HUP
func cmdSignal(ts *testscript.TestScript, _ bool, args []string) {
	s := map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL,
		"HUP": syscall.SIGHUP,
	}[args[1]]
	ts.Check(syscall.Kill(of(ts, args[0]).PID(), s))
}

// ended NAME CODE waits for the end and checks the exit code (137: killed); the
// output is in NAME.out and NAME.err.
func cmdEnded(ts *testscript.TestScript, _ bool, args []string) {
	p := of(ts, args[0])
	select {
	case <-p.Done():
	case <-time.After(patience):
		ts.Fatalf("%s does not end: %q", args[0], p.lines(proc.Stderr))
	}
	code := 0
	if err, ok := errors.AsType[*exec.ExitError](p.Err()); ok {
		if code = err.ExitCode(); code < 0 {
			code = 128 + int(err.Sys().(syscall.WaitStatus).Signal())
		}
	}
	for from, ext := range map[proc.Stream]string{proc.Stdout: ".out", proc.Stderr: ".err"} {
		var text strings.Builder
		for _, line := range p.lines(from) {
			text.WriteString(line + "\n")
		}
		ts.Check(os.WriteFile(ts.MkAbs(args[0]+ext), []byte(text.String()), 0o600))
	}
	if strconv.Itoa(code) != args[1] {
		ts.Fatalf("%s ended with %d, want %s: %q", args[0], code, args[1], p.lines(proc.Stderr))
	}
}

// waitlog NAME REGEXP waits for a line on stderr, waitout for one on stdout;
// what the first group matches is in FOUND.
func cmdWait(from proc.Stream) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		match := regexp.MustCompile(args[1])
		line, ok := of(ts, args[0]).await(from, match)
		if !ok {
			ts.Fatalf("no line matches: %q", of(ts, args[0]).lines(from))
		}
		if groups := match.FindStringSubmatch(line); len(groups) > 1 {
			ts.Setenv("FOUND", groups[1])
		}
	}
}

// ensures N [FLAG…] runs so many at once: they must print one URL, of one
// gateway. GW_URL and GW_PID are its own; it is killed when the script ends.
func cmdEnsures(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	var all []*process
	for i := range n {
		all = append(all,
			begin(ts, fmt.Sprintf("ensure%d", i), append([]string{"ensure"}, args[1:]...)...))
	}
	urls := map[string]int{}
	for _, p := range all {
		if err := p.Err(); err != nil {
			ts.Fatalf("ensure: %v: %q", err, p.lines(proc.Stderr))
		}
		urls[strings.Join(p.lines(proc.Stdout), "\n")]++
	}
	if len(urls) != 1 {
		ts.Fatalf("%d ensures printed %v", n, urls)
	}
	g, err := daemon.Dir(ts.Getenv("STATE")).Info()
	ts.Check(err)
	if urls[g.URL] != n {
		ts.Fatalf("%d ensures printed %v, gateway.json says %s", n, urls, g.URL)
	}
	ts.Setenv("GW_URL", g.URL)
	ts.Setenv("GW_PID", strconv.Itoa(g.PID))
	ts.Defer(func() { _ = syscall.Kill(g.PID, syscall.SIGKILL) })
	if found := gateways(ts.Getenv("COPILOT_HOME")); len(found) != 1 {
		ts.Fatalf("the gateways of this home are %v", found)
	}
}

// gateways are the processes that serve a home.
func gateways(home string) (pids []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if strings.Contains(string(line), "\x00serve\x00") &&
			strings.Contains("\x00"+string(env), "\x00COPILOT_HOME="+home+"\x00") {
			pids = append(pids, filepath.Base(dir))
		}
	}
	return pids
}

// gone PID waits until a process that is no child of ours has ended.
func cmdGone(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := daemon.Poll(ctx, func() bool {
		stat, err := os.ReadFile("/proc/" + args[0] + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
	if err != nil {
		ts.Fatalf("process %s still runs", args[0])
	}
}

// json FILE KEY… checks the members of a file's JSON objects, in order: of each
// element of an array, or of each line.
func cmdJSON(ts *testscript.TestScript, _ bool, args []string) {
	in := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	objects := 0
	var keys []string
	isKey := false
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		ts.Check(err)
		switch delim, _ := token.(json.Delim); delim {
		case '{', '[':
			if delim == '{' {
				objects, keys, isKey = objects+1, nil, true
			}
		case '}':
			if !slices.Equal(keys, args[1:]) {
				ts.Fatalf("members are %v, want %v", keys, args[1:])
			}
		case ']':
		default:
			if isKey {
				keys = append(keys, fmt.Sprint(token))
			}
			isKey = !isKey
		}
	}
	if objects == 0 {
		ts.Fatalf("there is no object in %s", args[0])
	}
}

func gatewayClient(ts *testscript.TestScript, url string) *client.Client {
	token, err := os.ReadFile(daemon.Dir(ts.Getenv("STATE")).AdminToken())
	ts.Check(err)
	c, err := client.New(client.Options{URL: url, Token: string(token)})
	ts.Check(err)
	return c
}

// session URL starts a local session at a gateway.
func cmdSession(ts *testscript.TestScript, _ bool, args []string) {
	c := gatewayClient(ts, args[0])
	defer c.Close()
	_, err := c.Start(context.Background(),
		adminapi.StartRequest{Host: "local", CWD: ts.MkAbs(".")})
	ts.Check(err)
}

// mute URL binds a provider that never says a word again: a gateway that ends
// has to wait for it.
func cmdMute(ts *testscript.TestScript, _ bool, args []string) {
	token, err := os.ReadFile(daemon.Dir(ts.Getenv("STATE")).ProviderToken())
	ts.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	c, _, err := websocket.Dial(ctx, args[0], nil)
	ts.Check(err)
	send := func(s string) { ts.Check(c.Write(ctx, websocket.MessageText, []byte(s))) }
	read := func() string {
		_, data, err := c.Read(ctx)
		ts.Check(err)
		return string(data)
	}
	send(`{"type":"auth","protocolVersion":2,"token":"` + string(token) + `"}`)
	sessions := read()
	id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(sessions)
	if id == nil {
		ts.Fatalf("no session: %s", sessions)
	}
	send(`{"type":"hello","protocolVersion":2,"name":"mute","session":"` + id[1] + `","tools":[]}`)
	for ack := read(); !strings.Contains(ack, "hello.ack"); ack = read() {
		if strings.Contains(ack, `"error"`) {
			ts.Fatalf("%s", ack)
		}
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			if _, _, err := c.Read(ctx); err != nil {
				return
			}
		}
	})
	ts.Defer(func() {
		cancel()
		_ = c.CloseNow()
		reading.Wait()
	})
}

// mode FILE 0600 checks a file's rights.
func cmdMode(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[1] {
		ts.Fatalf("%s has mode %s, want %s", args[0], got, args[1])
	}
}

// oneline FILE
func cmdOneLine(ts *testscript.TestScript, _ bool, args []string) {
	in := bufio.NewReader(strings.NewReader(ts.ReadFile(args[0])))
	if line, err := in.ReadString('\n'); err != nil || len(line) < 2 {
		ts.Fatalf("%s is no line: %q", args[0], line)
	}
	if rest, _ := io.ReadAll(in); len(rest) > 0 {
		ts.Fatalf("%s has more than a line: %q", args[0], rest)
	}
}

// cert writes cert.pem and key.pem, for this machine's loopback.
func cmdCert(ts *testscript.TestScript, _ bool, _ []string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	now := time.Now()
	like := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    now,
		NotAfter:     now.Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, like, like, key.Public(), key)
	ts.Check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: cert},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: private},
	} {
		ts.Check(os.WriteFile(ts.MkAbs(name), pem.EncodeToMemory(block), 0o600))
	}
}

// healthz HOST:PORT asks a gateway whose certificate cert made.
func cmdHealthz(ts *testscript.TestScript, _ bool, args []string) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ts.ReadFile("cert.pem")))
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer t.CloseIdleConnections()
	r, err := (&http.Client{Transport: t, Timeout: patience}).Get("https://" + args[0] + "/healthz")
	ts.Check(err)
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		ts.Fatalf("healthz: %s", r.Status)
	}
}
