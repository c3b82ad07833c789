package bench

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// oneLine is the least that a command can be.
const oneLine = `package main

import "fmt"

func main() { fmt.Println("bench 1.0") }
`

// BenchmarkStart is the time that commands take from their start to their end, and a gateway to its
// URL, beside a Go program that prints one line.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	put(b, filepath.Join(dir, "main.go"), oneLine)
	least := filepath.Join(dir, "least")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-o", least,
		filepath.Join(dir, "main.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	floor := func() metrics { return runs(b, nil, "", least) }
	b.Run("tapctl-version", func(b *testing.B) {
		tapctl := program(b, "tapctl")
		compare(b, floor, func() metrics { return runs(b, nil, "", tapctl, "--version") })
	})
	b.Run("serve", func(b *testing.B) {
		compare(b, floor, func() metrics {
			var took []time.Duration
			var cpu time.Duration
			for range 5 {
				m := rig{B: b}.gateway("")
				took = append(took, m.ready)
				cpu += m.cpu() / 5
				m.stop()
			}
			p50, p99 := quantiles(took, ms)
			return metrics{"p50-ms": p50, "p99-ms": p99, "cpu-ms": ms(cpu)}
		})
	})
	b.Run("hook", func(b *testing.B) {
		m := rig{B: b}.gateway("")
		tapgw := program(b, "tapgw")
		input := func(more object) string {
			in := object{"sessionId": "bench", "timestamp": time.Now().UnixMilli(), "cwd": m.home}
			for name, v := range more {
				in[name] = v
			}
			return string(marshal(in))
		}
		// The gateway knows a session from its first prompt on.
		runs(b, m.env, input(object{"prompt": "Say hello."}), tapgw, "hook", "userPromptSubmitted")
		call := input(object{"toolName": "bash",
			"toolArgs": object{"command": "echo hello", "description": "Says hello"}})
		compare(b, floor, func() metrics {
			return runs(b, m.env, call, tapgw, "hook", "preToolUse")
		})
	})
}

// runs runs a command several times.
func runs(b *testing.B, env []string, input string, argv ...string) metrics {
	b.Helper()
	var took []time.Duration
	var cpu time.Duration
	const times = 20
	for range times {
		cmd := exec.CommandContext(b.Context(), argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), env...)
		cmd.Stdin = bytes.NewReader([]byte(input))
		began := time.Now()
		out, err := cmd.CombinedOutput()
		took = append(took, time.Since(began))
		if err != nil || bytes.Contains(out, []byte("deny")) {
			b.Fatalf("%q: %v\n%s", argv, err, out)
		}
		cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	p50, p99 := quantiles(took, ms)
	return metrics{"p50-ms": p50, "p99-ms": p99, "cpu-ms": ms(cpu) / times}
}
