package copilot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
)

// shell is a request as the runtime makes one: it leaves redirections, assignments
// and keywords out of the parts.
func shell(text string, parts ...string) *rpc.PermissionRequestShell {
	req := &rpc.PermissionRequestShell{FullCommandText: text}
	for _, p := range parts {
		req.CommandSegments = append(req.CommandSegments,
			rpc.PermissionRequestShellCommandSegment{FullCommandText: p})
	}
	return req
}

// What package shellrule makes of commands it shows itself; this is what a session
// makes of it.
func TestCommandVerdict(t *testing.T) {
	allow := []string{"git status", "git log", "go test", "wc", "make *-short", "cd"}
	deny := []string{"rm", "git push"}
	tests := []struct {
		req  *rpc.PermissionRequestShell
		want verdict
	}{
		{shell("git status", "git status"), granted},
		{shell("git status --short", "git status --short"), granted},
		{shell("cd /src; go test ./... 2>&1 | wc -l", "cd /src", "go test ./...", "wc -l"),
			granted},
		{shell("make test-short", "make test-short"), granted},
		{shell("git status && make all", "git status", "make all"), noVerdict},
		{shell("git log --output=FILE", "git log --output=FILE"), noVerdict},
		// The runtime's parser saw one command; the shell runs another.
		{
			shell(`git status ${a="$"}${b="${a}(touch x)"}${b@P}`,
				`git status ${a="$"}${b="${a}(touch x)"}${b@P}`),
			noVerdict,
		},
		{shell("git\fstatus\fx/evil.sh", "git\fstatus\fx/evil.sh"), noVerdict},
		{shell("git\vstatus\vx/evil.sh", "git\vstatus\vx/evil.sh"), noVerdict},
		{shell("git\u00a0status\u00a0x/evil.sh", "git\u00a0status\u00a0x/evil.sh"), noVerdict},
		{shell(`cd x* && wc "${PWD@P}"`, "cd x*", `wc "${PWD@P}"`), noVerdict},
		{shell("PATH=/evil git status", "git status"), noVerdict},
		{shell("wc -l > out", "wc -l"), noVerdict},
		{shell(""), noVerdict},
		// Denials win, also by what the runtime found.
		{shell("git status && rm -rf x", "git status", "rm -rf x"), refused},
		{shell("git status", "rm x"), refused},
		{shell("git push --force", "git push --force"), refused},
		{shell("rmdir x", "rmdir x"), noVerdict},
	}
	for _, tt := range tests {
		if got, _ := commandVerdict(tt.req, allow, deny); got != tt.want {
			t.Errorf("%q: %d, want %d", tt.req.FullCommandText, got, tt.want)
		}
	}
	redirected := shell("wc -l", "wc -l")
	redirected.HasWriteFileRedirection = true
	if got, _ := commandVerdict(redirected, allow, deny); got != noVerdict {
		t.Errorf("with a redirection: %d, want %d", got, noVerdict)
	}
}

func TestPathVerdict(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", filepath.Join(root, "home"))
	cwd := filepath.Join(root, "cwd")
	for _, d := range []string{"cwd/src/deep", "cwd/secret", "other", "home"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"cwd/src/out": "../../other", "also": "other",
		"cwd/src/key":   "../secret",
		"cwd/src/later": "../secret/later"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(cwd, "secret", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	allow := []string{"src/**", filepath.Join(root, "also") + "/**", "~/notes/*.md"}
	deny := []string{"**/.env", "secret/**"}
	for name, want := range map[string]verdict{
		"src/a.go":                         granted,
		"src/deep/new/a.go":                granted,
		cwd + "/src/a.go":                  granted,
		root + "/also/x":                   granted,
		root + "/other/x":                  granted, // where also leads
		root + "/home/notes/a.md":          granted,
		root + "/home/notes/a.txt":         noVerdict,
		"a.go":                             noVerdict,
		"src/../a.go":                      noVerdict,
		"src/out/x":                        granted, // other, which the second glob allows
		root + "/elsewhere/x":              noVerdict,
		"src/.env":                         refused,
		"src/deep/../.env":                 refused,
		"secret/x":                         refused,
		"src/../secret/x":                  refused,
		"src/key/x":                        refused,
		"src/later":                        refused, // the same as when the file is there
		"src/key/file/x":                   refused, // the same as when it is a directory
		"src/out/../cwd/secret/x":          refused, // as the system reads it
		"src/" + string([]byte{0}) + "nul": noVerdict,
	} {
		if got := pathVerdict(name, cwd, allow, deny); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
	if got := pathVerdict("src/out/x", cwd, []string{"src/**"}, nil); got != noVerdict {
		t.Errorf("a symlink out of what is allowed: %d, want %d", got, noVerdict)
	}
}

// TestPathsOfEachProcess: a path that means another file to each process is refused, however it is
// written, and paths that only look like one are not.
func TestPathsOfEachProcess(t *testing.T) {
	cwd := t.TempDir()
	for link, to := range map[string]string{
		"away": "/proc/self/cwd", "far": "away/x", "loop": "loop", "here": ".",
		"up": strings.Repeat("../", 20) + "proc/thread-self",
	} {
		if err := os.Symlink(to, filepath.Join(cwd, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]verdict{
		"/proc/self/cwd": refused, "/proc/self/cwd/x": refused, "/proc/./self//fd/3": refused,
		"/proc/thread-self/cwd": refused, "/proc/x/../self/root/etc": refused, "/dev/fd/3": refused,
		"/etc/../proc/self/cwd": refused, "away": refused, "away/x": refused, "here/away": refused,
		"far": refused, "none/../away": refused, "up/cwd": refused,
		"/proc/1/status": noVerdict, "/proc/selfish": noVerdict, "proc/self/cwd": noVerdict,
		"here/x": noVerdict, "loop": noVerdict,
	} {
		for _, req := range []sdk.PermissionRequest{
			&rpc.PermissionRequestRead{Path: name}, &rpc.PermissionRequestWrite{FileName: name},
		} {
			got, why := patternVerdict(&configs.Permissions{}, req, cwd)
			if got != want || got == refused && why != perProcessReason {
				t.Errorf("%T of %s: %d, %q, want %d", req, name, got, why, want)
			}
		}
	}
}

func TestURLVerdict(t *testing.T) {
	allow := []string{"docs.example", "*.pkg.example", "https://api.example/v1/",
		"http://127.0.0.1:8080"}
	deny := []string{"evil.pkg.example", "docs.example/private", "[::1]", "10.0.0.1"}
	for s, want := range map[string]verdict{
		"https://docs.example/":                    granted,
		"http://DOCS.example./x?y":                 granted,
		"https://a.b.pkg.example/x":                granted,
		"https://api.example/v1":                   granted,
		"https://api.example/v1/x":                 granted,
		"http://127.0.0.1:8080/x":                  granted,
		"https://docs.example:8443/":               noVerdict,
		"https://user@docs.example/":               noVerdict,
		"ftp://docs.example/":                      noVerdict,
		"ftp://evil.pkg.example/":                  refused,
		"https://pkg.example/":                     noVerdict,
		"https://notpkg.example/":                  noVerdict,
		"http://api.example/v1/x":                  noVerdict,
		"https://api.example/v10":                  noVerdict,
		"https://api.example/v1/../admin":          noVerdict,
		"https://api.example/v1/%2e%2e/admin":      noVerdict,
		"https://api.example/v1/..%2fadmin":        noVerdict,
		"https://docs.example.evil/":               noVerdict,
		"https://docs.example@evil.example/":       noVerdict,
		"http://127.0.0.1:8081/":                   noVerdict,
		"://":                                      refused, // what can't be read can't be judged
		"https:evil.pkg.example":                   refused,
		"https:\\\\evil.pkg.example\\x":            refused,
		"https:/\\evil.pkg.example":                refused,
		"https://%zz/":                             refused,
		"https://ｅｖｉｌ.pkg.example/":                refused,
		"https://evil%2epkg.example/":              refused,
		"https://evil.pkg.example./":               refused,
		"https://EVIL.pkg.example:443":             refused,
		"https://a:b@evil.pkg.example/":            refused,
		"https://evil。pkg.example":                 refused,
		"ht\ntps://evil.pk\tg.example":             refused,
		"http://[::1]/":                            refused,
		"http://[0:0::0:1]:99/x":                   refused,
		"http://10.1/":                             refused,
		"http://0xa.0.1":                           refused,
		"http://167772161/":                        refused,
		"http://[::ffff:10.0.0.1]/":                refused,
		"https://docs.example/%70rivate":           refused,
		"https://docs.example/%2570rivate/x":       refused,
		"https://docs.example//private":            refused,
		"https://docs.example/x\\..\\private":      refused,
		"https://docs.example/%zz/../private":      refused,
		"https:docs.example/":                      granted, // as a browser reads it
		"https://docs.example/x%zz":                granted,
		"https://evil.pkg.example/":                refused,
		"https://evil.pkg.example:99/":             refused,
		"https://docs.example/private/x":           refused,
		"https://docs.example/public/../private/x": refused,
	} {
		if got := urlVerdict(s, allow, deny); got != want {
			t.Errorf("%s: %d, want %d", s, got, want)
		}
	}
}

// A denial names what no pattern allows, the key for a pattern, and then the setting that allows
// everything.
func TestHowToAllow(t *testing.T) {
	const file = " in [copilot.permissions] of tapgw.toml "
	p := &configs.Permissions{AllowCommands: []string{"echo", "git log"}}
	for _, tt := range []struct {
		req  sdk.PermissionRequest
		want string
	}{
		{shell("echo x > redirected.txt"), "allow_commands" + file +
			`has no pattern for the redirection "> redirected.txt"; set shell = "allow" there to allow every command`},
		{shell("echo x | rm -rf SECRET"), "allow_commands" + file +
			`has no pattern for the command "rm" (command 2 of 2); set shell = "allow" there to allow every command`},
		{shell("git -c a=SECRET log"), "allow_commands" + file +
			`has no pattern for the option "-c" before the command of "git"; ` +
			`set shell = "allow" there to allow every command`},
		{&rpc.PermissionRequestShell{FullCommandText: "echo x", HasWriteFileRedirection: true},
			"allow_commands" + file + `has no pattern for a redirection to a file; ` +
				`set shell = "allow" there to allow every command`},
		{&rpc.PermissionRequestRead{Path: "/x"}, "allow_read_paths" + file +
			`has no pattern for this file; set read = "allow" there to allow every file`},
		{&rpc.PermissionRequestWrite{FileName: "/x"}, "allow_write_paths" + file +
			`has no pattern for this file; set write = "allow" there to allow every file`},
		{&rpc.PermissionRequestURL{URL: "https://x/?SECRET"}, "allow_urls" + file +
			`has no pattern for this address; set url = "allow" there to allow every address`},
		{&rpc.PermissionRequestMCP{}, `set mcp = "allow"` + file + "to allow it"},
		{&rpc.PermissionRequestMemory{}, `set memory = "allow"` + file + "to allow it"},
	} {
		if got := howToAllow(p, tt.req); got != tt.want {
			t.Errorf("%T: %s\nwant %s", tt.req, got, tt.want)
		}
	}
}
