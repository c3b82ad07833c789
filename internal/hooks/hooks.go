// Package hooks asks the user's own hooks: programs and URLs that tapgw.toml
// names in [[hooks]]. What they may say, and what becomes of it, is the gateway's.
package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/proc"
)

const (
	maxAnswer = 64 << 10
	// killGrace is how long a program has to end once its time is over.
	killGrace = 500 * time.Millisecond
	maxReason = 1000
)

// New makes the gateway's hooks of those of a config file.
func New(list []configs.Hook) []gateway.Hook {
	hooks := make([]gateway.Hook, len(list))
	for i, h := range list {
		ask, what := post(h.URL), h.URL
		if len(h.Command) > 0 {
			ask, what = run(h.Command, h.Dir), filepath.Base(h.Command[0])
		}
		hooks[i] = gateway.Hook{
			Name: fmt.Sprintf("hooks[%d] (%s)", i, what), On: gateway.HookKind(h.On), Match: h.Match,
			FailOpen: h.FailOpen, Timeout: h.Timeout, Ask: ask,
		}
	}
	return hooks
}

type ask = func(ctx context.Context, event []byte) ([]byte, error)

// run asks a program: the event on its standard input, the answer on its standard
// output. An exit code other than 0 is a denial.
func run(command []string, dir string) ask {
	return func(ctx context.Context, event []byte) ([]byte, error) {
		out := &answer{}
		p, err := proc.Start(proc.Command{
			Path: command[0], Args: command[1:], Dir: dir, Env: proc.Environ(nil), Stdout: out, Grace: killGrace,
		})
		if err != nil {
			return nil, err
		}
		var writing sync.WaitGroup
		writing.Go(func() {
			_, _ = p.Stdin().Write(event) // it need not read
			_ = p.Stdin().Close()
		})
		select {
		case <-p.Done():
		case <-ctx.Done():
		}
		p.Stop()
		writing.Wait()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		exit, exited := errors.AsType[*exec.ExitError](p.Err())
		switch {
		case exited && exit.Exited():
			return nil, &gateway.HookDenial{Reason: last(p.Tail(), exit.ExitCode())}
		case p.Err() != nil:
			return nil, fmt.Errorf("it ended with %w", p.Err())
		}
		return out.text()
	}
}

// last is the last line that a program wrote for people, else its exit code.
func last(lines []string, code int) string {
	for _, line := range slices.Backward(lines) {
		if line := strings.TrimSpace(line); line != "" {
			return strings.ToValidUTF8(line[:min(len(line), maxReason)], "")
		}
	}
	return fmt.Sprintf("exit code %d", code)
}

// client asks URLs. A redirect is no answer.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// post asks a URL: the event is the request's body, the answer the response's.
func post(url string) ask {
	return func(ctx context.Context, event []byte) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(event))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		w, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		defer func() { _ = w.Body.Close() }()
		if w.StatusCode < 200 || w.StatusCode > 299 {
			return nil, fmt.Errorf("it answered with %s", w.Status)
		}
		out := &answer{}
		if _, err := io.Copy(out, w.Body); err != nil && !out.full {
			return nil, fmt.Errorf("reading its answer: %w", err)
		}
		return out.text()
	}
}

// answer keeps what a hook says, up to a size.
type answer struct {
	b    bytes.Buffer
	full bool
}

var errFull = fmt.Errorf("it said more than %d bytes", maxAnswer)

func (a *answer) Write(p []byte) (int, error) {
	if a.b.Len()+len(p) > maxAnswer {
		a.full = true
		return 0, errFull
	}
	return a.b.Write(p)
}

func (a *answer) text() ([]byte, error) {
	if a.full {
		return nil, errFull
	}
	return a.b.Bytes(), nil
}
