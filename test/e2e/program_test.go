//go:build e2e && linux

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"tapgw/configs"
	"tapgw/internal/statedir"
	"tapgw/providers"
)

// programs are what the test binary becomes in other processes.
var programs = map[string]func(args []string) error{
	"provider":     provider,
	"fixtures":     fixtures,
	"guarding":     guarding,
	"asking":       asking,
	"suite-client": runSuiteClient,
	"metrics":      metrics,
	"trespass":     trespass,
}

func runProgram(name string, args []string) int {
	program := programs[name]
	if program == nil {
		fmt.Fprintln(os.Stderr, "no program", name)
		return 2
	}
	if err := program(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// program makes a command that runs one of the programs.
func (h *home) program(name string, args ...string) *exec.Cmd {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	return h.command([]string{programVariable + "=" + name}, self, args...)
}

// provider starts a provider with tools of [toolbox].
func (h *home) provider(name string, tools string, args ...string) *process {
	h.t.Helper()
	return start(h.t, "provider "+name,
		h.program("provider", append([]string{"-name", name, "-tools", tools}, args...)...))
}

// bindProvider starts a provider and waits until it is bound to a session.
func (h *home) bindProvider(session, name, tools string, args ...string) *process {
	h.t.Helper()
	p := h.provider(name, tools, append([]string{"-session", session}, args...)...)
	p.expect("bound " + session)
	return p
}

// toolbox is a provider that does as it is told: its lines on stdin are
// commands, its lines on stdout are what happens to it.
type toolbox struct {
	name string
	p    *providers.Provider

	mu     sync.Mutex // guards what follows, and stdout
	finish chan struct{}
}

// provider is the program of a [toolbox].
func provider(args []string) error {
	f := flag.NewFlagSet("provider", flag.ContinueOnError)
	name := f.String("name", "toolbox", "its name")
	session := f.String("session", "", "the session to bind to")
	tools := f.String("tools", "greet", "its tools, by comma")
	if err := f.Parse(args); err != nil {
		return err
	}
	b := &toolbox{name: *name, finish: make(chan struct{})}
	b.p = providers.New(*name, &providers.Options{
		Session: *session,
		OnBound: func(ctx context.Context, at providers.Binding) {
			b.print("bound", at.Session, at.ProviderID)
			<-ctx.Done()
			b.print("unbound", at.Session)
		},
		OnSession: func(_ context.Context, e providers.SessionEvent) {
			b.print("session", string(e.State))
		},
		OnError: func(err error) { b.print("error", err.Error()) },
		Logger: slog.New(slog.NewTextHandler(os.Stderr,
			&slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for tool := range strings.SplitSeq(*tools, ",") {
		if err := b.add(ctx, tool); err != nil {
			return err
		}
	}
	go b.obey(ctx)
	return b.p.Run(ctx)
}

func (b *toolbox) print(words ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = fmt.Fprintln(os.Stdout, strings.Join(words, " "))
}

// obey does what stdin says.
func (b *toolbox) obey(ctx context.Context) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		verb, rest, _ := strings.Cut(in.Text(), " ")
		switch verb {
		case "add":
			b.print("added", rest, fmt.Sprint(b.add(ctx, rest)))
		case "remove":
			_, err := b.p.RemoveTool(ctx, rest)
			b.print("removed", rest, fmt.Sprint(err))
		case "push": // push LEVEL TEXT
			level, text, _ := strings.Cut(rest, " ")
			_, err := b.p.Push(ctx, providers.Event{Text: text, Level: providers.Level(level)})
			b.print("pushed", text, fmt.Sprint(err))
		case "finish":
			b.mu.Lock()
			close(b.finish)
			b.finish = make(chan struct{})
			b.mu.Unlock()
		}
	}
}

// add gives the provider a tool: what it does is in its name, up to an
// underscore.
func (b *toolbox) add(ctx context.Context, name string) error {
	tool, err := providers.NewTool(name, "Does "+name,
		func(ctx context.Context, in map[string]any) (any, error) {
			kind, _, _ := strings.Cut(name, "_")
			if kind == "quietly" {
				return in["for"], nil
			}
			b.print("called", name)
			switch kind {
			case "greet":
				return fmt.Sprintf("Hello, %v!", in["name"]), nil
			case "steps": // tells two before it is done
				providers.Progress(ctx, "one of two")
				providers.Progress(ctx, "two of two")
				return "walked", nil
			case "whoami":
				return fmt.Sprintf("%s here, for %v", b.name, in["for"]), nil
			case "wait": // for "finish"
				b.mu.Lock()
				finish := b.finish
				b.mu.Unlock()
				select {
				case <-finish:
					return "finished", nil
				case <-ctx.Done():
					b.print("ended", name, context.Cause(ctx).Error())
					return nil, ctx.Err()
				}
			}
			return nil, providers.NotFound("nothing is called %s", name)
		})
	if err != nil {
		return err
	}
	tool.Parameters = json.RawMessage(`{"type":"object"}`)
	_, err = b.p.AddTool(ctx, tool)
	return err
}

// gatewayAccess returns the URL of the gateway that runs in this home, and the token in a file.
func gatewayAccess(tokenFile string) (url, token string, err error) {
	dir := configs.StateDir()
	data, err := os.ReadFile(filepath.Join(dir, statedir.InfoFile))
	if err != nil {
		return "", "", err
	}
	var info struct{ URL string }
	if err := json.Unmarshal(data, &info); err != nil {
		return "", "", err
	}
	secret, err := os.ReadFile(filepath.Join(dir, tokenFile))
	return info.URL, string(secret), err
}

// metrics prints the /metrics of the gateway that runs in this home.
func metrics([]string) error {
	url, token, err := gatewayAccess(".admin-token")
	if err != nil {
		return err
	}
	r, err := http.NewRequest(http.MethodGet, "http"+strings.TrimPrefix(url, "ws")+"/metrics", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}
