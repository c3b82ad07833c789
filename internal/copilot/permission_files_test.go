package copilot

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// asker answers the questions of a session.
type asker struct {
	gateway.HostCalls
	decision string
	asked    []gateway.Question
}

func (a *asker) Ask(_ context.Context, q gateway.Question) (gateway.Answer, error) {
	a.asked = append(a.asked, q)
	return gateway.Answer{Decision: a.decision}, nil
}

func (a *asker) Note(adminapi.LogLevel, string) {}

// sessionWith is a session in a directory of its own, with these permissions and a person.
func sessionWith(t *testing.T, p configs.Permissions) (*session, *asker) {
	t.Helper()
	a := &asker{decision: adminapi.DecideOnce}
	s := &session{cwd: t.TempDir(), o: &Options{Permissions: p.WithDefaults()}, calls: a,
		ready: make(chan struct{}), log: slog.New(slog.DiscardHandler), lines: newQueue[line]()}
	s.ctx = t.Context()
	close(s.ready)
	return s, a
}

// TestPermitRead: what the gateway reads for a session's model passes the session's permissions for
// reads, and the denial is the same whether the file is there or not.
func TestPermitRead(t *testing.T) {
	s, a := sessionWith(t, configs.Permissions{DenyPaths: []string{"**/.env"}})
	s.o.Secrets = []string{filepath.Join(s.cwd, "tap")}
	if err := os.MkdirAll(s.o.Secrets[0], 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"notes": "", ".env": "deny_paths", "sub/.env": "deny_paths",
		"../x": "allows reading inside", "tap/.admin-token": "tokens", "tap/none": "tokens",
		"tap": "tokens",
	} {
		for _, there := range []bool{false, true} {
			if there && want != "" && path != "tap" && path != "../x" {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(s.cwd, path)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(s.cwd, path), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			denial := s.PermitRead(t.Context(), filepath.Join(s.cwd, path), "look")
			if !strings.Contains(denial, want) || (denial == "") != (want == "") {
				t.Errorf("%s, there: %t: %q, want %q in it", path, there, denial, want)
			}
		}
	}
	if len(a.asked) > 0 {
		t.Errorf("a person was asked %+v, want no question", a.asked)
	}

	s, a = sessionWith(t, configs.Permissions{Read: configs.Ask})
	for _, decision := range []string{adminapi.DecideOnce, adminapi.DecideDeny} {
		a.decision = decision
		denial := s.PermitRead(t.Context(), filepath.Join(s.cwd, "notes"), "look")
		if (denial != "") != (decision == adminapi.DecideDeny) {
			t.Errorf("a read that is asked, answered %s: %q", decision, denial)
		}
	}
	if len(a.asked) != 2 || !strings.Contains(a.asked[0].Message, "It is to: look") {
		t.Errorf("a person was asked %+v, want two questions with the purpose", a.asked)
	}
}

// TestRequestsOfACall: a request is judged by all files that its call names, and refused when the
// call is not known or can't be read.
func TestRequestsOfACall(t *testing.T) {
	quote := func(lines string) protocol.Raw {
		return rawJSON("*** Begin Patch\n" + lines + "\n*** End Patch")
	}
	const out = "/elsewhere/x"
	read := func(path string) rpc.PermissionRequest {
		return &rpc.PermissionRequestRead{Path: path, ToolCallID: new("c")}
	}
	write := func(path string) rpc.PermissionRequest {
		return &rpc.PermissionRequestWrite{FileName: path, ToolCallID: new("c")}
	}
	for name, tt := range map[string]struct {
		req  rpc.PermissionRequest
		use  *toolUse
		want string // of the denial; "" when it is allowed
	}{
		"plain": {read("a"), &toolUse{"view", protocol.Raw(`{"path":"a"}`)}, ""},
		"another path": {read("a"), &toolUse{"grep", protocol.Raw(`{"paths":["a","` + out + `"]}`)},
			"reading inside"},
		"unknown call": {read("a"), nil, "not known"},
		"of no call":   {&rpc.PermissionRequestRead{Path: "a"}, nil, ""},
		"written":      {write("a"), &toolUse{"create", protocol.Raw(`{"path":"a"}`)}, ""},
		"written, another path": {
			write("a"), &toolUse{"edit", protocol.Raw(`{"path":"a","file_path":"` + out + `"}`)},
			"write = ",
		},
		"patch": {write("b"), &toolUse{toolPatch, quote("*** Update File: a\n*** Move to: b\n-x")},
			""},
		"moved out": {
			write(out),
			&toolUse{toolPatch, quote("*** Update File: a\n*** Move to: " + out + "\n-x")},
			"write = ",
		},
		"moved in": {
			write("b"),
			&toolUse{toolPatch, quote("*** Update File: " + out + "\n*** Move to: b\n-x")},
			"write = ",
		},
		"not named": {write("c"), &toolUse{toolPatch, quote("*** Add File: b\n+x")},
			"does not name c"},
		"odd patch": {write("b"), &toolUse{toolPatch, quote("*** Add File: b\nx")},
			"can't be read"},
		"more fields": {write("b"), &toolUse{toolPatch, protocol.Raw(`{"input":"","path":"b"}`)},
			"can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := sessionWith(t, configs.Permissions{AllowWritePaths: []string{"**"}})
			if got := denialOf(s.decide(t.Context(), tt.req, tt.use)); !strings.Contains(got,
				tt.want) ||
				(got == "") != (tt.want == "") {
				t.Errorf("the denial: %q, want %q in it", got, tt.want)
			}
		})
	}
}

// TestCodeSearchIsJudged: the runtime's search of code on GitHub, about which it does not ask,
// needs the permission for the address that it sends the query to, and a person who is asked sees
// the query.
func TestCodeSearchIsJudged(t *testing.T) {
	search := toolUse{codeSearchTool, protocol.Raw(`{"repo":"a/b","query":"my words"}`)}
	const here, elsewhere = "https://api.github.com/repos/a/", "https://api.github.com/repos/c/"
	allowed := configs.Permissions{URL: configs.Allow}
	for name, tt := range map[string]struct {
		p    configs.Permissions
		args string
		want string
	}{
		"by default":           {want: "allow_urls"},
		"allowed":              {p: allowed},
		"allowed by a pattern": {p: configs.Permissions{AllowURLs: []string{here}}},
		"another repository": {p: configs.Permissions{AllowURLs: []string{elsewhere}},
			want: "allow_urls"},
		"denied by a pattern": {
			p:    configs.Permissions{URL: configs.Allow, DenyURLs: []string{"api.github.com"}},
			want: "deny_urls",
		},
		"asked":                  {p: configs.Permissions{URL: configs.Ask}},
		"arguments of no search": {args: `{"repo":["a"]}`, p: allowed, want: "can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s, a := sessionWith(t, tt.p)
			u := search
			if tt.args != "" {
				u.args = protocol.Raw(tt.args)
			}
			denial := s.unaskedDenial(t.Context(), u)
			if !strings.Contains(denial, tt.want) || (denial == "") != (tt.want == "") {
				t.Errorf("the search: %q, want %q in it", denial, tt.want)
			}
			isAsked := len(a.asked) == 1 && strings.Contains(a.asked[0].Detail, "a/b") &&
				strings.Contains(a.asked[0].Detail, "my+words")
			if isAsked != (tt.p.URL == configs.Ask) {
				t.Errorf(
					"a person was asked %+v, want the query in a question if the permission says ask", a.asked)
			}
		})
	}
}

// TestTerminalDecidesAlone: in a terminal that the gateway joined by its port, the gateway's own
// permissions keep no call from beginning, because the person there decides.
func TestTerminalDecidesAlone(t *testing.T) {
	s, _ := sessionWith(t, configs.Permissions{})
	s.joined = byPort
	for tool, args := range map[string]string{
		"edit": `{"path":"/x"}`, toolCreate: `{"path":"/x"}`, toolPatch: `"no patch"`,
		lspTool:        `{}`,
		codeSearchTool: `{"repo":"a/b","query":"x"}`,
	} {
		if denial := s.unaskedDenial(t.Context(), toolUse{tool, protocol.Raw(args)}); denial != "" {
			t.Errorf("%s: %q, want it to begin", tool, denial)
		}
	}
}
