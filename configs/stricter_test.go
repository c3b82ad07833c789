package configs

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestStricterPermissionsNeedNoTrust: of a project's file that nobody trusts, what is stricter than
// the user's file counts at once, in directories below it too, and nothing that is wider. With
// trust, a default counts as any value.
func TestStricterPermissionsNeedNoTrust(t *testing.T) {
	atHome(t)
	project := filepath.Join(t.TempDir(), "project")
	below := filepath.Join(project, "below")
	file := filepath.Join(project, ".tapgw", "tapgw.toml")
	write(t, filepath.Join(below, "x"), "")
	write(t, filepath.Join(UserDir(), configFile),
		"[copilot.permissions]\nwrite = \"allow\"\nurl = \"ask\"\n"+
			"deny_paths = [\"*.key\"]\n")
	const stricter = "max_connections = 7\n[copilot.permissions]\nwrite = \"deny\"\nshell = \"allow\"\nurl = \"allow\"\n" +
		"read = \"ask\"\ndeny_paths = [\"*.pem\"]\ndeny_commands = [\"rm\"]\nallow_commands = [\"ls\"]\n"
	write(t, file, stricter)
	at := func() (Config, string) {
		t.Helper()
		f, err := Find("/", "")
		if err != nil {
			t.Fatal(err)
		}
		c, from, err := f.LoadAt(below)
		if err != nil {
			t.Fatal(err)
		}
		from = cmp.Or(from, c.Copilot.Permissions.TightenAt(below))
		return c, from
	}
	for name, text := range map[string]string{
		"as it is": stricter, "with a fault": stricter + "memory = 3\n",
		"with a pattern twice": strings.Replace(stricter, `["rm"]`, `["rm", "rm"]`, 1),
		"with faulty patterns": strings.Replace(stricter, `["*.pem"]`, `["[", "*.pem", 3]`, 1),
	} {
		write(t, file, text)
		c, from := at()
		p := c.Copilot.Permissions
		if p.Write != Deny || p.Shell != Deny || p.URL != Ask || p.Read != CWD ||
			len(p.AllowCommands) > 0 ||
			!slices.Equal(p.DenyPaths, []string{"*.key", "*.pem"}) ||
			!slices.Equal(p.DenyCommands, []string{"rm"}) {
			t.Errorf("%s: %+v, want what is stricter of both", name, p)
		}
		if from != file || c.MaxConnections != Default().MaxConnections {
			t.Errorf("%s: from %q with %d connections, want %s and nothing else of it", name, from,
				c.MaxConnections, file)
		}
	}
	write(t, file, "[copilot.permissions]\nwrite = \"deny\"\n")
	const says = "; stricter than yours, and counting without trust: copilot.permissions.write"
	if counts, err := WhatCounts(project); err != nil || len(counts) != 1 ||
		counts[0].What != "sessions here use its copilot.permissions.write"+says {
		t.Errorf("what counts: %v, %v, want copilot.permissions.write", counts, err)
	}
	f, err := Find(project, "")
	if err != nil {
		t.Fatal(err)
	}
	if notes := f.Notes(); len(notes) != 1 || !strings.HasSuffix(notes[0].Message, says) {
		t.Errorf("notes: %v, want one that ends with %q", notes, says)
	}
	if _, _, err := Trust(project); err != nil {
		t.Fatal(err)
	}
	if c, from := at(); c.Copilot.Permissions.Write != Deny || from != file {
		t.Errorf("trusted: %+v from %q, want the project's", c.Copilot.Permissions, from)
	}
	write(t, file, "[copilot.permissions]\nwrite = \"ask\"\nshell = \"allow\"\n")
	if c, _ := at(); c.Copilot.Permissions.Write != Ask || c.Copilot.Permissions.Shell != Deny {
		t.Errorf("changed since: %+v, want only what is stricter", c.Copilot.Permissions)
	}
}

// TestLSClientDefaultsOfAProject: a default in a project's lsclient.toml counts where the user's
// file says something else, once it is trusted. Of the keys that a project can't set, the user's
// stay, though the file has the defaults.
func TestLSClientDefaultsOfAProject(t *testing.T) {
	atHome(t)
	project := t.TempDir()
	file := filepath.Join(project, ".tapgw", lsFile)
	write(t, filepath.Join(UserDir(), lsFile), "max_rounds = 100\n[allow]\nterminal = [\"ls\"]\n")
	write(t, file, "max_rounds = 25\n[allow]\nterminal = []\n")
	load := func() (LSFiles, LSClient) {
		t.Helper()
		f, err := FindLSClient(project, "")
		if err != nil {
			t.Fatal(err)
		}
		c, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		return f, c
	}
	if f, c := load(); f.Untrusted != file || c.MaxRounds != 100 {
		t.Errorf("untrusted: %q is left out, %d rounds, want %s and 100", f.Untrusted, c.MaxRounds,
			file)
	}
	counts, err := WhatCounts(project)
	if err != nil || len(counts) != 1 || counts[0].What != "lsclient uses here its max_rounds" {
		t.Errorf("what counts: %v, %v, want max_rounds", counts, err)
	}
	if _, _, err := Trust(project); err != nil {
		t.Fatal(err)
	}
	if _, c := load(); c.MaxRounds != 25 || !slices.Equal(c.Allow.Terminal, []string{"ls"}) {
		t.Errorf("trusted: %d rounds, %v allowed, want 25 and ls", c.MaxRounds, c.Allow.Terminal)
	}
}
