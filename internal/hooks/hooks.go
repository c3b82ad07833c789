// Package hooks asks the user hooks: programs and URLs that [[hooks]] in tapgw.toml names. It runs
// a program or sends a request and returns the answer's bytes; internal/gateway reads and applies
// them (docs/hooks.md).
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
	maxAnswer = 64 << 10 // bytes
	maxReason = 1000     // bytes of a denial's reason
	// killGrace is how long a program has to end after it was asked to, once its time is over.
	killGrace = 500 * time.Millisecond
)

// New turns the hooks of a config file into hooks of the gateway, in the same order. Each is named
// by its index and its program or URL, as errors and the timeline show it.
func New(list []configs.Hook) []gateway.Hook {
	hooks := make([]gateway.Hook, len(list))
	for i, h := range list {
		ask, target := post(h.URL), h.URL
		if len(h.Command) > 0 {
			ask, target = run(h.Command, h.Dir, nil), filepath.Base(h.Command[0])
		}
		hooks[i] = gateway.Hook{
			Name: fmt.Sprintf("hooks[%d] (%s)", i, target), On: gateway.HookKind(h.On),
			Match: h.Match, FailOpen: bool(h.FailOpen), Timeout: h.Timeout, Ask: ask,
		}
	}
	return hooks
}

// ask asks a hook about an event, a JSON object, and returns its answer, at most 64 KiB. The error
// is a [*gateway.HookDenial] if the hook denies by its exit code.
type ask = func(ctx context.Context, event []byte) ([]byte, error)

// run asks a program, with variables beside the common ones: the event is its standard input, the
// answer its standard output. An exit code other than 0 denies.
func run(command []string, dir string, env map[string]string) ask {
	return func(ctx context.Context, event []byte) ([]byte, error) {
		out := &boundedAnswer{}
		p, err := proc.Start(proc.Command{
			Path: command[0], Args: command[1:], Dir: dir, Env: proc.Environ(env), Stdout: out,
			Grace: killGrace,
		})
		if err != nil {
			return nil, err
		}
		var writing sync.WaitGroup
		writing.Go(func() {
			_, _ = p.Stdin().Write(event) // a program that does not read is no error
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
			return nil, &gateway.HookDenial{Reason: denialReason(p.Tail(), exit.ExitCode())}
		case p.Err() != nil:
			return nil, fmt.Errorf("it ended with %w", p.Err())
		}
		return out.text()
	}
}

// denialReason returns the last line that a program wrote to its standard error, or its exit code.
func denialReason(lines []string, code int) string {
	for _, line := range slices.Backward(lines) {
		if line := strings.TrimSpace(line); line != "" {
			return strings.ToValidUTF8(line[:min(len(line), maxReason)], "")
		}
	}
	return fmt.Sprintf("exit code %d", code)
}

// client asks URLs. It follows no redirect: the event goes to the URL of the config file only.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
	return http.ErrUseLastResponse
}}

// post asks a URL: the event is the body of the request, and the answer is the body of the
// response. A status other than 2xx is an error.
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
		out := &boundedAnswer{}
		if _, err := io.Copy(out, w.Body); err != nil && !out.isTooLong {
			return nil, fmt.Errorf("reading its answer: %w", err)
		}
		return out.text()
	}
}

// boundedAnswer is a buffer for at most maxAnswer bytes of an answer.
type boundedAnswer struct {
	buffer    bytes.Buffer
	isTooLong bool
}

var errTooLong = fmt.Errorf("it said more than %d bytes", maxAnswer)

func (a *boundedAnswer) Write(p []byte) (int, error) {
	if a.buffer.Len()+len(p) > maxAnswer {
		a.isTooLong = true
		return 0, errTooLong
	}
	return a.buffer.Write(p)
}

func (a *boundedAnswer) text() ([]byte, error) {
	if a.isTooLong {
		return nil, errTooLong
	}
	return a.buffer.Bytes(), nil
}
