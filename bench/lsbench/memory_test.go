//go:build runtime

package lsbench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/internal/langserver"
	"tapgw/internal/proc"
)

// readme is the model's answer in the turns of BenchmarkMemory.
const readme = "# Title\n\nSome **bold** text, `code`, and [a link](https://example.com/).\n\n- one\n- two\n\n" +
	"| a | b |\n|---|---|\n| 1 | 2 |\n\n```go\nfunc main() {}\n```\n"

// memoryTurns are prompts for a model that calls the tool in a prompt, and then repeats the tool's
// result.
var memoryTurns = []string{
	`call:list_dir {"path":"."}`,
	`call:run_in_terminal {"command":"cat README.md","explanation":"to see it"}`,
	`call:grep_search {"query":"bold"}`,
	`call:create_file {"filePath":"new.md","content":"one\ntwo\n"}`,
	`call:read_file {"filePath":"README.md"}`,
	`call:run_in_terminal {"command":"cat README.md README.md","explanation":"to see it"}`,
	`call:file_search {"query":"*.md"}`,
	`call:run_in_terminal {"command":"cat README.md","explanation":"to see it"}`,
}

// BenchmarkMemory is the memory of lsclient itself, without the server, in a chat on a terminal
// whose turns call tools and show Markdown: the memory at the prompt after the last turn, and the
// most of all turns. Target: 24 MiB.
func BenchmarkMemory(b *testing.B) {
	s := newStage(b)
	if err := os.WriteFile(filepath.Join(s.workspace, "README.md"), []byte(readme),
		0o600); err != nil {
		b.Fatal(err)
	}
	program := filepath.Join(b.TempDir(), "lsclient")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-o", program,
		"tapgw/cmd/lsclient")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building lsclient: %v\n%s", err, out)
	}
	var waiting, most []float64
	for b.Loop() {
		rss, peak := s.memory(b, program)
		waiting, most = append(waiting, rss), append(most, peak)
	}
	slices.Sort(waiting)
	slices.Sort(most)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(waiting[len(waiting)/2], "MiB")
	b.ReportMetric(most[len(most)/2], "peak-MiB")
}

// memory runs a chat in tmux and returns the MiB that lsclient has at the prompt after the turns,
// and has had at most.
func (s stage) memory(b *testing.B, program string) (rss, peak float64) {
	b.Helper()
	dir, err := os.MkdirTemp("", "tmux") // short, because the paths of sockets are
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	tmux := func(args ...string) string {
		cmd := exec.CommandContext(b.Context(), "tmux",
			append([]string{"-S", filepath.Join(dir, "s"), "-f", os.DevNull}, args...)...)
		cmd.Env = append(proc.Environ(s.env), langserver.EnvServer+"="+s.server)
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	tmux("new-session", "-d", "-x", "100", "-y", "40", program, "chat", "-w", s.workspace,
		"--gateway", "off", "--yes", ";", "set-option", "remain-on-exit", "on", ";", "set-option",
		"-g", "history-limit", "5000")
	defer tmux("kill-server")
	shown := func(text string, times int) {
		for deadline := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
			screen := tmux("capture-pane", "-p", "-S", "-")
			if strings.Count(screen, text) >= times {
				return
			}
			if time.Now().After(deadline) {
				b.Fatalf("after a minute the screen shows:\n%s\nwant %q %d times", screen, text,
					times)
			}
		}
	}
	shown("\n>\n", 1)
	for i, prompt := range memoryTurns {
		tmux("send-keys", "-l", prompt)
		tmux("send-keys", "Enter")
		shown(" tokens in", i+1)
	}
	<-time.After(time.Second) // it gives memory back a moment after the turn
	status, err := os.ReadFile("/proc/" + strings.TrimSpace(tmux("display-message", "-p",
		"#{pane_pid}")) + "/status")
	if err != nil {
		b.Fatal(err)
	}
	return statusMiB(b, status, "VmRSS:"), statusMiB(b, status, "VmHWM:")
}

// statusMiB reads a value of a process's status.
func statusMiB(b *testing.B, status []byte, name string) (mib float64) {
	b.Helper()
	_, rest, _ := strings.Cut(string(status), name)
	if _, err := fmt.Sscan(rest, &mib); err != nil {
		b.Fatalf("%s: %v", name, err)
	}
	return mib / 1024
}
