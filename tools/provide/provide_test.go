package provide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"tapgw/providers"
	"tapgw/tools"
)

func TestCheck(t *testing.T) {
	allow := Allow{Terminal: []string{"go test *"}, Tools: []string{"deploy"}}
	run := json.RawMessage(`{"command":"go test ./..."}`)
	tests := []struct {
		tool *tools.Tool
		args json.RawMessage
		ok   bool
	}{
		{&tools.Tool{Name: "read_file", Kind: tools.Read}, nil, true},
		{&tools.Tool{Name: "create_file", Kind: tools.Edit}, nil, true}, // stays in the workspace
		{&tools.Tool{Name: "run_in_terminal", Kind: tools.Terminal}, run, true},
		{&tools.Tool{Name: "run_in_terminal", Kind: tools.Terminal},
			json.RawMessage(`{"command":"rm -rf ."}`), false},
		{&tools.Tool{Name: "run_in_terminal", Kind: tools.Terminal},
			json.RawMessage(`{"command":5}`), false},
		{&tools.Tool{Name: "run_in_terminal", Kind: tools.Terminal},
			json.RawMessage(`{"command":"rm -rf .","Command":"go test"}`), false},
		{&tools.Tool{Name: "run_in_terminal", Kind: tools.Terminal},
			json.RawMessage(`{"command":"go test","command":"rm x"}`), false},
		{&tools.Tool{Name: "run_in_terminal", Kind: tools.Terminal},
			json.RawMessage(`{"command":"go test ${a=\"$\"}${b=\"${a}(touch x)\"}${b@P}"}`), false},
		{&tools.Tool{Name: "run_tests", Kind: tools.Terminal},
			json.RawMessage(`{"command":"go test\fx"}`), false},
		{&tools.Tool{Name: "lookup", Kind: tools.Read, Source: "lookup.py"}, nil, true},
		{&tools.Tool{Name: "fetch_web_page", Kind: tools.Web}, nil, true},
		{&tools.Tool{Name: "github_repo", Kind: tools.Web, Consent: true}, nil, false},
		{&tools.Tool{Name: "unsaid", Source: "unsaid.py"}, nil, false},
		{&tools.Tool{Name: "sweep", Kind: tools.Terminal, Source: "sweep"}, run, false},
		{&tools.Tool{Name: "deploy", Kind: tools.Terminal, Source: "deploy"}, nil, true},
		{&tools.Tool{Name: "write", Kind: tools.Edit, Source: "write"}, nil, false},
	}
	for _, tt := range tests {
		err := allow.Check(tt.tool, tt.args)
		var refusal *Refusal
		if (err == nil) != tt.ok || err != nil && !errors.As(err, &refusal) {
			t.Errorf("%s %s: %v, want allowed %v", tt.tool.Name, tt.args, err, tt.ok)
		}
	}
}

// The refusal of a command names what of it no rule allows, and the list.
func TestRefusalNamesThePart(t *testing.T) {
	allow := Allow{Terminal: []string{"echo *"}}
	terminal := &tools.Tool{Name: "run_in_terminal", Kind: tools.Terminal}
	for command, part := range map[string]string{
		"echo x > redirected.txt": `the redirection "> redirected.txt"`,
		"echo x | rm y":           `the command "rm" (command 2 of 2)`,
		"echo $HOME":              `the variable "$HOME"`,
	} {
		args, _ := json.Marshal(map[string]string{"command": command})
		want := fmt.Sprintf(
			"the command %q is not allowed: allow.terminal in lsclient.toml has no rule for %s",
			command, part)
		if err := allow.Check(terminal, args); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", command, err, want)
		}
	}
}

func TestOutside(t *testing.T) {
	allow := Allow{Outside: []string{"/tmp/build/**", "/etc/hosts"}}
	for path, want := range map[string]bool{
		"/tmp/build/a/b": true, "/tmp/build": true, "/etc/hosts": true,
		"/etc/passwd": false, "/tmp/building": false, "/tmp/build/../x": false,
	} {
		if got := allow.AllowsOutside(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestHosts(t *testing.T) {
	allow := Allow{Web: []string{"wiki.local", "::1"}}
	for host, want := range map[string]bool{"wiki.local": true, "WIKI.local": true, "[::1]": true,
		"[0::0:1]":    true,
		"wiki.local.": true, "x.wiki.local": false, "127.0.0.1": false} {
		if got := allow.AllowsHost(host); got != want {
			t.Errorf("%s: %v, want %v", host, got, want)
		}
	}
}

func TestResultData(t *testing.T) {
	tests := []struct {
		result tools.Result
		want   string // its JSON, or its error
	}{
		{tools.Result{Parts: []string{"a", "b"}}, `"a\nb"`},
		{tools.Result{}, `""`},
		{tools.Result{Data: json.RawMessage(`{"result":"success","n":1}`)},
			`{"result":"success","n":1}`},
		{tools.Result{Data: json.RawMessage(`{"result":"error","message":"no disk"}`)},
			`INTERNAL: no disk`},
		{tools.Result{Data: json.RawMessage(`{"result":"error"}`)},
			`INTERNAL: the tool says error, and nothing more`},
		{tools.Result{Written: []tools.Written{{Path: "/w/a"}}, Removed: []string{"/w/b"}},
			`{"result":"success","written":["/w/a"],"removed":["/w/b"]}`},
	}
	for _, tt := range tests {
		v, err := ResultData(tt.result)
		got := fmt.Sprint(err)
		if err == nil {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.result, got, tt.want)
		}
	}
}

func TestCodes(t *testing.T) {
	for want, err := range map[providers.Code]error{
		providers.CodeUnauthorized: fmt.Errorf("opening: %w", refuse("no")),
		providers.CodeTimeout:      fmt.Errorf("x: %w", context.DeadlineExceeded),
		providers.CodeCancelled:    fmt.Errorf("x: %w", context.Canceled),
		providers.CodeInternal:     errors.New("x"),
	} {
		if got := CodedError(err); got.Code != want {
			t.Errorf("%v: %v, want %s", err, got, want)
		}
	}
}
