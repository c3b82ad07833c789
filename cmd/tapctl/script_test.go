package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
	"tapgw/internal/daemon"
	"tapgw/internal/taptest"
	"tapgw/providers"
)

func TestMain(m *testing.M) {
	testscript.Main(taptest.LeakChecked{M: m}, map[string]func(){
		"tapctl": main,
		"sample": sampleProvider,
	})
}

// TestScripts runs the real binary against a real gateway, as shells would.
func TestScripts(t *testing.T) {
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "tapgw/cmd/tapgw")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building tapgw: %v\n%s", err, out)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("COPILOT_HOME", filepath.Join(env.WorkDir, "home", "copilot"))
			for _, name := range []string{
				"TAP_GATEWAY_URL", "TAP_ADMIN_TOKEN", "TAPGW_CONFIG", "XDG_CONFIG_HOME", "NO_COLOR",
				"CLICOLOR_FORCE",
			} {
				env.Setenv(name, "")
			}
			env.Values[processes{}] = map[string]*process{}
			env.Values[authServer{}] = new(*taptest.AuthServer)
			return os.MkdirAll(env.Getenv("COPILOT_HOME"), 0o700)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"gateway":   cmdGateway,
			"provider":  cmdProvider,
			"exits":     taptest.Exits,
			"set":       cmdSet,
			"keys":      cmdKeys,
			"oneline":   cmdOneLine,
			"prefix":    cmdPrefix,
			"follow":    cmdFollow,
			"begin":     cmdBegin,
			"calls":     cmdCalls,
			"interrupt": cmdInterrupt,
			"dies":      cmdDies,
			"ended":     cmdEnded,
			"printed":   cmdPrinted,
			"waits":     cmdWaits,
			"bound":     cmdBound,
			"captured":  cmdCaptured,
			"mcpserver": cmdMCPServer,
			"browser":   cmdBrowser,
			"fault":     cmdFault,
			"gone":      cmdGone,
			"nosecrets": cmdNoSecrets,
		},
	})
}

// process is a program that runs beside a script.
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	exit   int
	output lockedBuffer
	errors lockedBuffer
}

// lockedBuffer takes what a program prints and tells who watches of each write.
type lockedBuffer struct {
	mu    sync.Mutex
	text  strings.Builder
	wrote chan struct{} // holds one
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.wrote <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// start runs a program with the script's environment until the script ends, or
// it does, and waits until ready says so of what it printed.
func start(
	ts *testscript.TestScript, name string, ready func(stdout, stderr string) bool, line ...string,
) *process {
	p := &process{ended: make(chan struct{})}
	wrote := make(chan struct{}, 1)
	p.output.wrote, p.errors.wrote = wrote, wrote
	path := line[0]
	for dir := range strings.SplitSeq(ts.Getenv("PATH"), string(filepath.ListSeparator)) {
		if at := filepath.Join(dir, line[0]); path == line[0] {
			if _, err := os.Stat(at); err == nil {
				path = at
			}
		}
	}
	p.cmd = exec.Command(path, line[1:]...)
	p.cmd.Dir = ts.MkAbs(".")
	for _, v := range []string{
		"PATH", "HOME", "COPILOT_HOME", "TMPDIR", "TAP_GATEWAY_URL", "TAPGW_CONFIG", "SAMPLE_STAYS",
	} {
		p.cmd.Env = append(p.cmd.Env, v+"="+ts.Getenv(v))
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.errors
	ts.Check(p.cmd.Start())
	go func() {
		defer close(p.ended)
		if err, ok := errors.AsType[*exec.ExitError](p.cmd.Wait()); ok {
			p.exit = err.ExitCode()
		}
	}()
	ts.Value(processes{}).(map[string]*process)[name] = p
	ts.Defer(func() { p.stop(syscall.SIGTERM) })
	timeout := time.After(patience)
	for !ready(p.output.String(), p.errors.String()) {
		select {
		case <-wrote:
			continue
		case <-p.ended:
			if ready(p.output.String(), p.errors.String()) {
				return p
			}
		case <-timeout:
		}
		ts.Fatalf("starting %s: it did not come to work\n%s\n%s", name, p.output.String(),
			p.errors.String())
	}
	return p
}

// stop ends a process and waits for it; one that does not go is killed.
func (p *process) stop(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal)
	p.wait()
}

func (p *process) wait() (inTime bool) {
	select {
	case <-p.ended:
		return true
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return false
	}
}

// patience bounds the wait for another process.
const patience = 90 * time.Second

// processes is the key of a script's processes, by name.
type processes struct{}

func processOf(ts *testscript.TestScript, name string) *process {
	p := ts.Value(processes{}).(map[string]*process)[name]
	if p == nil {
		ts.Fatalf("nothing named %s was started", name)
	}
	return p
}

func printedLine(stdout, _ string) bool { return strings.Contains(stdout, "\n") }

// cmdGateway starts a gateway on a free port with the script's home and waits
// until it is ready; URL becomes its address. "gateway stop" ends it.
func cmdGateway(ts *testscript.TestScript, _ bool, args []string) {
	if slices.Equal(args, []string{"stop"}) {
		processOf(ts, "gateway").stop(syscall.SIGTERM)
		return
	}
	ts.Check(taptest.LeaveOutTap(ts.MkAbs("."), args, cmp.Or(
		ts.Getenv("TAPGW_CONFIG"), filepath.Join(ts.Getenv("HOME"), ".config", "tapgw",
			"tapgw.toml"),
	)))
	p := start(ts, "gateway", printedLine,
		append([]string{"tapgw", "serve", "--listen", "127.0.0.1:0"}, args...)...)
	url, _, _ := strings.Cut(p.output.String(), "\n")
	ts.Setenv("URL", url)
}

// cmdProvider starts the sample provider, for a session or the first, and waits
// until it is bound.
func cmdProvider(ts *testscript.TestScript, _ bool, args []string) {
	start(ts, "provider", printedLine, append([]string{"sample"}, args...)...)
}

// cmdFollow starts a command under a name, and waits until it follows something
// of the gateway's.
func cmdFollow(ts *testscript.TestScript, _ bool, args []string) {
	start(ts, args[0], func(_, stderr string) bool {
		return regexp.MustCompile(`/(log|live|history|recording)(\?\S+)?: 200 OK`).MatchString(
			stderr)
	}, append(args[1:], "-v")...)
}

// cmdBegin starts a command under a name, and waits until its stderr matches.
func cmdBegin(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[1])
	start(ts, args[0], func(_, stderr string) bool {
		return pattern.MatchString(stderr)
	}, args[2:]...)
}

// cmdCaptured finds a pattern in the stderr of a command, and sets a variable to the text of the
// pattern's first group.
func cmdCaptured(ts *testscript.TestScript, _ bool, args []string) {
	text := processOf(ts, args[1]).errors.String()
	found := regexp.MustCompile(args[2]).FindStringSubmatch(text)
	if found == nil {
		ts.Fatalf("%s wrote %q, want a match of %s", args[1], text, args[2])
	}
	ts.Setenv(args[0], found[1])
}

// cmdCalls waits until providers work on so many calls.
func cmdCalls(ts *testscript.TestScript, _ bool, args []string) {
	waitForProviders(ts, args[0], func(p adminapi.Provider) int { return p.InFlight })
}

func cmdInterrupt(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(processOf(ts, args[0]).cmd.Process.Signal(os.Interrupt))
}

// dies NAME kills a process, which can't do anything about it, and waits for its end.
func cmdDies(ts *testscript.TestScript, _ bool, args []string) {
	processOf(ts, args[0]).stop(os.Kill)
}

// cmdEnded waits for what follow started to end with an exit code; what it
// printed is in NAME.out and NAME.err.
func cmdEnded(ts *testscript.TestScript, _ bool, args []string) {
	p := processOf(ts, args[1])
	if !p.wait() {
		ts.Fatalf("%s does not end", args[1])
	}
	if got := strconv.Itoa(p.exit); got != args[0] {
		ts.Fatalf("%s: exit code %s, want %s\n%s", args[1], got, args[0], p.errors.String())
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]+".out"), []byte(p.output.String()), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]+".err"), []byte(p.errors.String()), 0o600))
}

// cmdPrefix sets a variable to the beginning of an id that no other one has.
func cmdPrefix(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], args[1][:13])
}

// cmdSet sets a variable to a file's text, or to what stands there in its JSON:
// set ID stdout 0 id.
func cmdSet(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.TrimSpace(ts.ReadFile(args[1]))
	if len(args) > 2 {
		var v any
		ts.Check(json.Unmarshal([]byte(text), &v))
		for _, key := range args[2:] {
			switch in := v.(type) {
			case []any:
				i, err := strconv.Atoi(key)
				ts.Check(err)
				v = in[i]
			case map[string]any:
				v = in[key]
			}
		}
		text = fmt.Sprint(v)
	}
	ts.Setenv(args[0], text)
}

// cmdKeys checks the members of a file's JSON objects, and their order: those of
// a document, of each element of an array, or of each line. A member that ends in
// "?" may be missing.
func cmdKeys(ts *testscript.TestScript, _ bool, args []string) {
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	objects := 0
	for dec.More() {
		var doc json.RawMessage
		ts.Check(dec.Decode(&doc))
		list := []json.RawMessage{doc}
		if doc[0] == '[' {
			ts.Check(json.Unmarshal(doc, &list))
		}
		for _, object := range list {
			objects++
			got := members(ts, object)
			var want []string
			for _, key := range args[1:] {
				name, optional := strings.CutSuffix(key, "?")
				if !optional || slices.Contains(got, name) {
					want = append(want, name)
				}
			}
			if !slices.Equal(got, want) {
				ts.Fatalf("members are %v, want %v in %s", got, want, object)
			}
		}
	}
	if objects == 0 {
		ts.Fatalf("there is no object in %s", args[0])
	}
}

func members(ts *testscript.TestScript, object json.RawMessage) (names []string) {
	dec := json.NewDecoder(strings.NewReader(string(object)))
	_, err := dec.Token()
	ts.Check(err)
	for dec.More() {
		name, err := dec.Token()
		ts.Check(err)
		names = append(names, fmt.Sprint(name))
		var value json.RawMessage
		ts.Check(dec.Decode(&value))
	}
	return names
}

// cmdOneLine checks that a file is one line.
func cmdOneLine(ts *testscript.TestScript, _ bool, args []string) {
	if text := ts.ReadFile(args[0]); strings.Count(text, "\n") != 1 ||
		!strings.HasSuffix(text, "\n") {
		ts.Fatalf("%s is not one line: %q", args[0], text)
	}
}

// sampleProvider is a program: a provider with one tool of each kind. It prints
// "bound" when it is.
func sampleProvider() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	bound := make(chan struct{}, 1)
	o := &providers.Options{
		Logger:  slog.New(slog.DiscardHandler),
		OnBound: func(context.Context, providers.Binding) { bound <- struct{}{} },
	}
	if len(os.Args) > 1 {
		o.Session = os.Args[1]
	}
	if os.Getenv("SAMPLE_STAYS") != "" { // when its session ends, until it is stopped
		o.OnSession = func(sctx context.Context, e providers.SessionEvent) {
			if e.State == providers.SessionEnding {
				<-sctx.Done()
			}
		}
	}
	p := providers.New("sample", o)
	type text struct {
		Text string `json:"text"`
	}
	echo := func(_ context.Context, in text) (string, error) { return in.Text, nil }
	providers.AddTool(p, "echo", "Answers with its text.\nIn full.", echo)
	wrap := func(_ context.Context, in text) (map[string]string, error) {
		return map[string]string{"wrapped": in.Text}, nil
	}
	providers.AddTool(p, "wrap", "Answers with an object.", wrap)
	providers.AddTool(p, "fail", "Fails.", func(context.Context, struct{}) (string, error) {
		return "", providers.NotFound("no such page")
	})
	providers.AddTool(p, "hang", "Waits to be cancelled.",
		func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
	go func() { <-bound; fmt.Println("bound") }()
	if err := p.Run(ctx); err != nil {
		panic(err)
	}
}

// cmdPrinted waits until what follow started has printed something.
func cmdPrinted(ts *testscript.TestScript, _ bool, args []string) {
	p, want := processOf(ts, args[0]), regexp.MustCompile(args[1])
	timeout := time.After(patience)
	for !want.MatchString(p.output.String()) {
		select {
		case <-p.output.wrote:
		case <-p.ended:
			ts.Fatalf("%s ended and printed\n%s", args[0], p.output.String())
		case <-timeout:
			ts.Fatalf("%s printed only\n%s", args[0], p.output.String())
		}
	}
}

// cmdWaits waits until so many questions wait for a person.
func cmdWaits(ts *testscript.TestScript, _ bool, args []string) {
	waitForCount(ts, args[0], func(ctx context.Context, gw *client.Client) (int, error) {
		questions, err := gw.Questions(ctx)
		return len(questions), err
	})
}

// cmdBound waits until so many providers are bound.
func cmdBound(ts *testscript.TestScript, _ bool, args []string) {
	waitForProviders(ts, args[0], func(p adminapi.Provider) int {
		if p.State == "bound" {
			return 1
		}
		return 0
	})
}

// waitForProviders waits until the providers' counts make so many.
func waitForProviders(ts *testscript.TestScript, total string, count func(adminapi.Provider) int) {
	waitForCount(ts, total, func(ctx context.Context, gw *client.Client) (n int, err error) {
		all, err := gw.Providers(ctx)
		for _, p := range all {
			n += count(p)
		}
		return n, err
	})
}

// waitForCount asks the gateway until it counts so many.
func waitForCount(
	ts *testscript.TestScript, total string, count func(context.Context, *client.Client) (int,
		error),
) {
	want, err := strconv.Atoi(total)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	gw, err := client.New(client.Options{URL: ts.Getenv("URL"), Token: adminToken(ts)})
	ts.Check(err)
	defer gw.Close()
	for n := -1; n != want; {
		n, err = count(ctx, gw)
		ts.Check(err)
	}
}

func adminToken(ts *testscript.TestScript) string {
	return strings.TrimSpace(ts.ReadFile(filepath.Join(ts.Getenv("COPILOT_HOME"), "extensions",
		"tap", ".admin-token")))
}

// gone FILE waits until a file is not there any more.
func cmdGone(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := daemon.Poll(ctx, func() bool {
		_, err := os.Lstat(ts.MkAbs(args[0]))
		return errors.Is(err, fs.ErrNotExist)
	}); err != nil {
		ts.Fatalf("%s is there: %v", args[0], err)
	}
}
