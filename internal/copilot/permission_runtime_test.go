//go:build runtime

package copilot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/internal/gateway"
)

func TestPermissionsOfReads(t *testing.T) {
	g := newRig(t)
	outside := filepath.Join(t.TempDir(), "outside.txt")
	inside := filepath.Join(g.cwd, "inside.txt")
	link := filepath.Join(g.cwd, "link.txt")
	write(t, outside, "far away")
	write(t, inside, "close by")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	s := g.start()
	s.turn(fmt.Sprintf(`call:view {"path":%q}`, inside))
	if !strings.Contains(s.lastSaid(), "close by") {
		t.Errorf(`reading inside the directory: %q, want "close by" in it`, s.lastSaid())
	}
	for _, path := range []string{outside, link, inside + "/../../../etc/hostname"} {
		s.turn(fmt.Sprintf(`call:view {"path":%q}`, path))
		const how = `allow_read_paths in [copilot.permissions] of tapgw.toml has no pattern for this file; set read = "allow" `
		if said := s.lastSaid(); !strings.Contains(said, how) {
			t.Errorf("reading %s: %q, want %q in it", path, said, how)
		}
	}
	if !strings.Contains(s.allNotes(), "warning: read request denied") {
		t.Errorf(`notes: %s, want "warning: read request denied" in it`, s.allNotes())
	}
}

// No tool that reads finds the gateway's tokens, hidden as they are, in the session's
// own directory.
func TestTokensAreNotRead(t *testing.T) {
	secrets := make([]string, 1)
	g := newRig(t, func(o *Options) { o.Secrets = secrets })
	secrets[0] = filepath.Join(g.cwd, ".copilot", "tap")
	for _, dir := range []string{secrets[0], filepath.Join(g.cwd, "src")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(secrets[0], ".admin-token"), "adm-SECRET")
	write(t, filepath.Join(g.cwd, "src", "x"), "adm-example")
	s := g.start()
	for _, call := range []string{
		`grep {"pattern":"adm-","output_mode":"content"}`,
		`grep {"pattern":"adm-","path":".copilot","output_mode":"content"}`,
		fmt.Sprintf(`view {"path":%q}`, filepath.Join(secrets[0], ".admin-token")),
	} {
		s.turn("call:" + call)
		if said := s.lastSaid(); strings.Contains(said, "SECRET") ||
			!strings.Contains(said, "the gateway's tokens") {
			t.Errorf(`%s: %q, want no "SECRET" in it and "the gateway's tokens" in it`, call, said)
		}
	}
	s.turn(`call:grep {"pattern":"adm-","path":"src","output_mode":"content"}`)
	if said := s.lastSaid(); !strings.Contains(said, "adm-example") {
		t.Errorf(`beside them: %q, want "adm-example" in it`, said)
	}
}

func TestPermissionsByKind(t *testing.T) {
	file := func(g *rig) string { return filepath.Join(g.cwd, "made.txt") }
	cases := map[string]struct {
		prompt func(g *rig) string
		allow  func(*configs.Permissions)
	}{
		"shell": {
			func(*rig) string {
				return `call:bash {"command":"echo done","description":"say done"}`
			},
			func(p *configs.Permissions) { p.Shell = configs.Allow },
		},
		"write": {func(g *rig) string {
			return fmt.Sprintf(`call:create {"path":%q,"file_text":"done"}`, file(g))
		}, func(p *configs.Permissions) { p.Write = configs.Allow }},
	}
	for kind, c := range cases {
		t.Run(kind, func(t *testing.T) {
			g := newRig(t)
			s := g.start()
			s.turn(c.prompt(g))
			want := fmt.Sprintf(`set %s = "allow" `, kind)
			if !strings.Contains(s.lastSaid(), want) {
				t.Errorf("denied: %q, want %q in it", s.lastSaid(), want)
			}
			if _, err := os.Stat(file(g)); err == nil {
				t.Error("the file was made, want none")
			}
		})
		t.Run(kind+" allowed", func(t *testing.T) {
			g := newRig(t, func(o *Options) { c.allow(&o.Permissions) })
			s := g.start()
			s.turn(c.prompt(g))
			if said := s.lastSaid(); strings.Contains(said, "copilot.permissions") || said == "" {
				t.Errorf(`allowed: %q, want a text without "copilot.permissions"`, said)
			}
		})
	}
}

func TestCustomToolsDenied(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Permissions.CustomTool = configs.Deny })
	s := g.start()
	ran := false
	s.tool("act", func(context.Context, string) gateway.Outcome {
		ran = true
		return gateway.Outcome{}
	})
	s.turn("call:act")
	if ran || !strings.Contains(s.lastSaid(), `set custom-tool = "allow"`) {
		t.Errorf(`it ran: %t; the model said %q, want no run, and set custom-tool = "allow" in it`,
			ran, s.lastSaid())
	}
}

// The runtime puts a large result in a file: the model must be able to read it.
func TestLargeResult(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.tool("big", text(strings.Repeat("0123456789abcde\n", 10_000)))
	s.turn("call:big")
	_, rest, ok := strings.Cut(s.lastSaid(), "Saved to: ")
	path, _, _ := strings.Cut(rest, "\n")
	if !ok {
		t.Fatalf(`the model said %q, want "Saved to: " in it`, s.lastSaid())
	}
	s.turn(fmt.Sprintf(`call:view {"path":%q,"view_range":[1,2]}`, path))
	if !strings.Contains(s.lastSaid(), "0123456789abcde") {
		t.Errorf(`reading the result: %q, want "0123456789abcde" in it`, s.lastSaid())
	}
	if err := s.host.Close(g.ctx, "done"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the result's file is there after the end, want no file")
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
