//go:build runtime

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNewProvider writes a provider in each language beside a gateway that runs, calls its tool,
// and runs its own test. Nothing comes from the network: Go's modules are those of this build, make
// runtime has installed ws, and websockets is Debian's.
func TestNewProvider(t *testing.T) {
	env := map[string]string{"GOPROXY": "off", "GOFLAGS": "", "PYTHONDONTWRITEBYTECODE": "1"}
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env[name] = strings.TrimSpace(string(out))
	}
	modules, err := filepath.Abs("../../.runtime/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "ws")); err != nil {
		t.Fatalf("no npm package ws (%v): run make runtime", err)
	}
	env["NODE_MODULES"] = modules
	// Debian's own interpreter has websockets; another python3 may come first on PATH.
	if out, err := exec.Command("/usr/bin/python3", "-c",
		"import websockets").CombinedOutput(); err != nil {
		t.Fatalf("/usr/bin/python3 has no websockets: apt-get install python3-websockets\n%s", out)
	}
	runScripts(t, "testdata/new", env)
}
