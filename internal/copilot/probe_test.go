//go:build runtime

package copilot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// noAccount takes away what could sign the runtime in.
func noAccount(t *testing.T) {
	for _, name := range []string{"GH_TOKEN", "GITHUB_TOKEN", "COPILOT_GITHUB_TOKEN"} {
		t.Setenv(name, "")
	}
}

func TestProbe(t *testing.T) {
	noAccount(t)
	g := newRig(t)
	st, err := g.r.Probe(g.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if st.Path == "" || st.Source != SourceConfig || st.Version == "" || st.Protocol < 3 ||
		st.SignedIn || st.Detail == "" {
		t.Errorf(
			"%+v, want a path, source %v, a version, protocol 3 or more, nobody signed in, and the detail",
			st, SourceConfig,
		)
	}
}

func TestNotSignedIn(t *testing.T) {
	noAccount(t)
	g := newRig(t, func(o *Options) { o.ProviderURL = "" })
	_, err := g.r.Models(g.ctx)
	check := func(err error) {
		t.Helper()
		var coded *protocol.Error
		if !errors.As(err, &coded) || coded.Code != protocol.CodeInvalidState {
			t.Errorf("error %v, want code %s", err, protocol.CodeInvalidState)
			return
		}
		for _, part := range []string{
			"not signed in", "provider_url", "copilot login", "COPILOT_GITHUB_TOKEN",
			"tapgw restart",
		} {
			if !strings.Contains(coded.Message, part) {
				t.Errorf("error %q, want %q in it", coded.Message, part)
			}
		}
	}
	check(err)
	check(g.r.start(g.ctx, gateway.StartRequest{CWD: g.cwd}, nil))
	// An endpoint in the request needs no sign-in, in the same process.
	s := g.start(func(r *gateway.StartRequest) {
		r.ProviderURL, r.ProviderKey = g.model.URL, "scripted-model-key"
	})
	s.turn("hello")
	if key := g.model.Requests()[0].Header.Get(
		"Authorization"); key != "Bearer scripted-model-key" {
		t.Errorf(`the endpoint was given %q, want "Bearer scripted-model-key"`, key)
	}
}

func TestRuntimeThatDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "copilot")
	if err := os.WriteFile(script,
		[]byte("#!/bin/sh\necho first line >&2\necho out of order >&2\nexit 3\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	for name, cli := range map[string]string{"fails": script, "none": filepath.Join(dir, "none")} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, func(o *Options) { o.CLI = cli })
			err := g.r.start(g.ctx, gateway.StartRequest{CWD: g.cwd, Model: "m"}, nil)
			if err == nil || strings.Contains(err.Error(), "\n") ||
				!strings.Contains(err.Error(), cli) {
				t.Errorf("error: %v, want one line with %q in it", err, cli)
			}
			if name == "fails" && !strings.Contains(err.Error(), "out of order") {
				t.Errorf("the error is %v, want out of order in it", err)
			}
		})
	}
}
