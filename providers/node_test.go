//go:build runtime

package providers_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nodeModules returns the directory of the packages that `make runtime` installed.
func nodeModules(t testing.TB) (dir string) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".runtime", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ws", "typescript", "zod"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatalf("no npm package %s (%v): run make runtime", name, err)
		}
	}
	return dir
}

// nodePackage copies the Node SDK to where its imports find the packages that `make runtime`
// installed.
func nodePackage(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("node")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(nodeModules(t), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// nodeCommand makes a command that runs in a directory, without the variables by which a provider
// finds a gateway.
func nodeCommand(dir string, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "TAP_") &&
			name != "COPILOT_HOME" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// nodeTimeout is for a program that would never end: its test fails with the output so far.
const nodeTimeout = 5 * time.Minute

// runNode runs a program and returns its output.
func runNode(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	docs, err := filepath.Abs(filepath.Join("..", "docs"))
	if err != nil {
		t.Fatal(err)
	}
	documents := filepath.Join(docs, "providers.md") + ":" + filepath.Join(docs,
		"providers-node.md")
	env := []string{"COPILOT_HOME=" + t.TempDir(), "DOCUMENTS=" + documents + ":README.md"}
	cmd := nodeCommand(dir, env, name, args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &stderr, time.Second
	err = cmd.Start()
	if err == nil {
		kill := time.AfterFunc(nodeTimeout, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		kill.Stop()
	}
	if err != nil {
		t.Fatalf("%s: %v, want success\n%s%s", cmd, err, &out, &stderr)
	}
	return strings.TrimSpace(out.String())
}

// TestNodeScenarios plays the scenarios with the samples in Node.
func TestNodeScenarios(t *testing.T) {
	playSDK(t, "node", filepath.Join(nodePackage(t), "test", "sample.mjs"))
}

// TestNode runs the tests that the Node SDK has in its own language, and the compiler over its
// types.
func TestNode(t *testing.T) {
	dir := nodePackage(t)
	t.Run("types", func(t *testing.T) {
		t.Parallel()
		runNode(t, dir, "node", "node_modules/typescript/bin/tsc", "-p", ".")
	})
	for _, file := range []string{"provider", "fire", "docs", "names", "imports"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			runNode(t, dir, "node", "--test", filepath.Join("test", file+".test.mjs"))
		})
	}
}

// TestNodePackage installs the packed SDK into an empty directory, without a network or a cache,
// and uses it there.
func TestNodePackage(t *testing.T) {
	into, packed := t.TempDir(), t.TempDir()
	npm := func(dir string, args ...string) {
		t.Helper()
		runNode(t, dir, "npm", append(args, "--offline", "--cache="+t.TempDir(), "--no-audit",
			"--no-fund", "--update-notifier=false")...)
	}
	npm(nodePackage(t), "pack", "--pack-destination", packed)
	npm(into, "pack", "--ignore-scripts", "--pack-destination", packed,
		filepath.Join(nodeModules(t), "ws"))
	files, err := filepath.Glob(filepath.Join(packed, "*.tgz"))
	if err != nil || len(files) != 2 {
		t.Fatalf("npm packed %v (%v), want two files", files, err)
	}
	npm(into, append([]string{"install"}, files...)...)

	const version = `import("tapgw-provider").then((m) => console.log(Object.keys(m).sort().join(" ")))`
	got := runNode(t, into, "node", "-e", version)
	want := "CancelError NotConnectedError NotPairedError Provider ProviderError QuestionEnded Rule allow " +
		"contentResult createProvider default deny fileResult imageResult notFound"
	if got != want {
		t.Errorf("the installed package exports %s, want %s", got, want)
	}
	listed, err := filepath.Glob(filepath.Join(into, "node_modules", "tapgw-provider", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range listed {
		listed[i] = filepath.Base(file)
	}
	if got, want := strings.Join(listed,
		" "), "README.md index.d.mts index.mjs lib package.json"; got != want {
		t.Errorf("the package has %s, want %s", got, want)
	}
	checkNodeUser(t, into)
}

// checkNodeUser compiles a program in TypeScript that uses the installed package, and one that uses
// it wrongly.
func checkNodeUser(t *testing.T, dir string) {
	t.Helper()
	const program = `import { createProvider, type Receipt } from "tapgw-provider";
const provider = createProvider("hello", { autoConnect: false });
const receipt: Receipt = await provider.surface(%s);
const fate: string = receipt.fate;
console.log(fate);
`
	compiler := filepath.Join(nodeModules(t), "typescript", "bin", "tsc")
	types := filepath.Join(nodeModules(t), "@types")
	for text, valid := range map[string]bool{`"text"`: true, `7`: false} {
		file := filepath.Join(dir, "program.mts")
		if err := os.WriteFile(file, fmt.Appendf(nil, program, text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := nodeCommand(dir, nil, "node", compiler, "--noEmit", "--strict", "--target", "es2022",
			"--module", "nodenext", "--typeRoots", types, "--types", "node", "--skipLibCheck", file)
		if out, err := cmd.CombinedOutput(); (err == nil) != valid {
			t.Errorf("compiling surface(%s): %v, want success: %v\n%s", text, err, valid, out)
		}
	}
}

// TestNodeStorm ends 10,000 calls in flight of a gateway by time-outs and by their callers.
func TestNodeStorm(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	dir, token := nodePackage(t), w.gateway.InstanceToken()
	env := []string{"TAP_GATEWAY_URL=" + w.url, "TAP_PROVIDER_TOKEN=" + token,
		"COPILOT_HOME=" + t.TempDir()}
	stop, done := startProcess(t, nodeCommand(dir, env, "node", filepath.Join("test", "sample.mjs"),
		"echo"))
	<-s.tools
	stormCalls(t, s)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for s.call(t, "echo", `{"text":"still here"}`) != "still here" {
		select {
		case <-tick.C: // it comes back
		case <-late:
			t.Fatal("after the storm the tool echo does not answer, want its text")
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("the provider ended with %v, want success", err)
	}
}
