package copilot

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	program := func(path ...string) string {
		full := filepath.Join(append([]string{dir}, path...)...)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return full
	}
	configured, named, full := program("a", "copilot-runtime"), program("b", "copilot-runtime"),
		program(
			"path", "copilot",
		)
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	system := runtime.GOOS + "-" + arch
	installed := program(
		"project", ".runtime", "node_modules", "@github", "copilot-sdk-"+system, "prebuilds",
		system, "copilot-runtime",
	)
	program(
		"project", ".runtime", "node_modules", "@github", "copilot-sdk-"+system, "prebuilds",
		system,
		"copilot-runtime.txt",
	)
	exe := program("project", "bin", "tapgw")
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}

	tests := map[string]struct {
		cli, env, exe string
		path          bool
		want          Found
		err           string
	}{
		"config": {cli: configured, env: named, exe: exe, path: true,
			want: Found{configured, SourceConfig}},
		"env":            {env: named, exe: exe, path: true, want: Found{named, SourceEnv}},
		"project":        {exe: exe, path: true, want: Found{installed, SourceProject}},
		"path":           {exe: full, path: true, want: Found{full, SourcePath}},
		"name in config": {cli: "copilot", exe: exe, path: true, want: Found{full, SourceConfig}},
		"nothing":        {exe: full, err: "run `make runtime`"},
		"config missing": {
			cli: filepath.Join(dir, "none"),
			env: named,
			exe: exe,
			err: "cli in [copilot] of tapgw.toml: " + filepath.Join(dir, "none") + ": no such file",
		},
		"config directory":  {cli: dir, err: "is a directory"},
		"config no program": {cli: plain, err: "may not be run"},
		"env missing": {env: filepath.Join(dir, "none"), exe: exe, path: true,
			err: "COPILOT_CLI_PATH: "},
		"name unknown": {cli: "copilot", err: "not found on PATH"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := finder{
				getenv:     func(string) string { return tt.env },
				executable: func() (string, error) { return tt.exe, nil },
				lookPath: func(string) (string, error) {
					if tt.path {
						return full, nil
					}
					return "", errors.New("not there")
				},
			}
			got, err := f.find(tt.cli)
			switch {
			case tt.err == "" && (err != nil || got != tt.want):
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("%+v, %v; want an error with %q", got, err, tt.err)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{
		"PATH=/bin", "HOME=/h", "COPILOT_HOME=/c", "GH_TOKEN=t", "https_proxy=p", "LC_ALL=C",
		"XDG_CONFIG_HOME=/x",
		"COPILOT_CONNECTION_TOKEN=x", "TAP_ADMIN_TOKEN=adm-1", "TAP_PROVIDER_TOKEN=ptk-instance",
		"TAP_MODEL_KEY=k", "AWS_SECRET_ACCESS_KEY=s", "broken",
	}, []string{"TAP_GATEWAY_URL=ws://x", "TAP_PROVIDER_TOKEN=ptk-spawn", "TAP_ADMIN_TOKEN=adm-2"})
	want := []string{
		"PATH=/bin", "HOME=/h", "COPILOT_HOME=/c", "GH_TOKEN=t", "https_proxy=p", "LC_ALL=C",
		"XDG_CONFIG_HOME=/x",
		"TAP_GATEWAY_URL=ws://x", "TAP_PROVIDER_TOKEN=ptk-spawn",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func TestExecRuntimeIsForTheLauncherOnly(t *testing.T) {
	for _, args := range [][]string{{"tapgw"}, {"tapgw", "serve"}, {"tapgw", "serve", LaunchArg}} {
		if _, ran := ExecRuntime(args); ran {
			t.Errorf("%q ran the runtime, want a program that is not run", args)
		}
	}
}

// TestNoRuntime: requests that need a runtime fail with INVALID_STATE where none is found, and say
// what was looked for.
func TestNoRuntime(t *testing.T) {
	cli := filepath.Join(t.TempDir(), "none")
	g := gateway.New(
		gateway.Options{Starters: map[string]gateway.Starter{Kind: New(Options{CLI: cli})}})
	_, listed := g.Persisted(t.Context(), gateway.PersistedFilter{})
	_, resumed := g.Resume(t.Context(), "s-1", gateway.ResumeRequest{})
	for name, tt := range map[string]struct {
		err  error
		part string
	}{
		"list":   {listed, cli},
		"resume": {resumed, `looking for session "s-1" on disk: `},
		"delete": {g.DeletePersisted(t.Context(), "s-1"), `looking for session "s-1" on disk: `},
	} {
		e, ok := errors.AsType[*protocol.Error](tt.err)
		if !ok || e.Code != protocol.CodeInvalidState || !strings.Contains(tt.err.Error(), cli) ||
			!strings.Contains(tt.err.Error(), tt.part) {
			t.Errorf("%s: %v, want %s with %q and %q", name, tt.err, protocol.CodeInvalidState, cli,
				tt.part)
		}
	}
}
