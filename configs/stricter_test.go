package configs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestStricterPermissionsNeedNoTrust: of a project's file that nobody trusts, what is stricter than the user's file
// counts at once, in directories below it too, and nothing that is wider. With trust, a default counts as any value.
func TestStricterPermissionsNeedNoTrust(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	project := filepath.Join(t.TempDir(), "project")
	below := filepath.Join(project, "below")
	file := filepath.Join(project, ".tapgw", "tapgw.toml")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(below, "x"), "")
	write(filepath.Join(UserDir(), configFile), "[copilot.permissions]\nwrite = \"allow\"\nurl = \"ask\"\n"+
		"deny_paths = [\"*.key\"]\n")
	const stricter = "max_connections = 7\n[copilot.permissions]\nwrite = \"deny\"\nshell = \"allow\"\nurl = \"allow\"\n" +
		"read = \"ask\"\ndeny_paths = [\"*.pem\"]\ndeny_commands = [\"rm\"]\nallow_commands = [\"ls\"]\n"
	write(file, stricter)
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
		return c, from
	}
	for name, text := range map[string]string{"as it is": stricter, "with a fault": stricter + "memory = 3\n"} {
		write(file, text)
		c, from := at()
		p := c.Copilot.Permissions
		if p.Write != Deny || p.Shell != Deny || p.URL != Ask || p.Read != CWD || len(p.AllowCommands) > 0 ||
			!slices.Equal(p.DenyPaths, []string{"*.key", "*.pem"}) || !slices.Equal(p.DenyCommands, []string{"rm"}) {
			t.Errorf("%s: %+v, want what is stricter of both", name, p)
		}
		if from != file || c.MaxConnections != Default().MaxConnections {
			t.Errorf("%s: from %q with %d connections, want %s and nothing else of it", name, from, c.MaxConnections, file)
		}
	}
	write(file, "[copilot.permissions]\nwrite = \"deny\"\n")
	if counts, err := WhatCounts(project); err != nil || len(counts) != 1 ||
		counts[0].What != "sessions here use its copilot.permissions.write" {
		t.Errorf("what counts: %v, %v, want copilot.permissions.write", counts, err)
	}
	if _, _, err := Trust(project); err != nil {
		t.Fatal(err)
	}
	if c, from := at(); c.Copilot.Permissions.Write != Deny || from != file {
		t.Errorf("trusted: %+v from %q, want the project's", c.Copilot.Permissions, from)
	}
	write(file, "[copilot.permissions]\nwrite = \"ask\"\nshell = \"allow\"\n")
	if c, _ := at(); c.Copilot.Permissions.Write != Ask || c.Copilot.Permissions.Shell != Deny {
		t.Errorf("changed since: %+v, want only what is stricter", c.Copilot.Permissions)
	}
}
