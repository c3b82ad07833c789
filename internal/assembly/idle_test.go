package assembly

import (
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/configs"
)

// goroutines returns the function of each goroutine of this process, by the goroutine's first line.
func goroutines() map[string]string {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	functions := map[string]string{}
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		id, frames, _ := strings.Cut(stack, " [")
		for line := range strings.Lines(frames) {
			if strings.HasPrefix(line, "created by ") {
				break
			}
			if i := strings.LastIndex(line, "("); i > 0 && line[0] != '\t' &&
				!strings.HasPrefix(line, "sync.") {
				functions[id] = line[:i]
			}
		}
	}
	return functions
}

// TestIdleGateway shows that a gateway runs and writes nothing for what nobody uses: MCP, sessions,
// traces, the page.
func TestIdleGateway(t *testing.T) { // not parallel: it counts the goroutines of the process
	home := t.TempDir()
	config := configs.Default()
	config.Listen = "127.0.0.1:0"
	before := goroutines()
	p, err := Start(t.Context(), Options{
		Config: config, Home: home, Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar),
		Load: func() (configs.Config, configs.Files, error) { return config, configs.Files{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	want := []string{
		"tapgw/internal/assembly.(*Process).open.func1", // follows the config files
		"tapgw/internal/assembly.Start.func1",           // serves
		"tapgw/internal/server.(*Server).Serve.func1",
		"tapgw/internal/supervisor.(*Supervisor).Open.func1",
		"tapgw/internal/supervisor.(*Supervisor).run",
		"tapgw/internal/watch.(*watcher).update.func1",
	}
	var got []string
	for end := time.Now().Add(patience); !slices.Equal(got, want) &&
		time.Now().Before(end); runtime.Gosched() {
		got = got[:0]
		for id, function := range goroutines() {
			// other systems have others
			if before[id] == "" && !strings.HasPrefix(function, "github.com/fsnotify/") {
				got = append(got, function)
			}
		}
		slices.Sort(got)
		got = slices.Compact(got)
	}
	if !slices.Equal(got, want) {
		t.Errorf("goroutines of an idle gateway:\n%s\nwant:\n%s", strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
	wantFiles := []string{
		"extensions/tap/.admin-token", "extensions/tap/.provider-token",
		"extensions/tap/gateway.json",
		"extensions/tap/gateway.lock",
	}
	var files []string
	err = fs.WalkDir(os.DirFS(home), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || !slices.Equal(files, wantFiles) {
		t.Errorf("files of an idle gateway: %q, %v, want %q", files, err, wantFiles)
	}
}
