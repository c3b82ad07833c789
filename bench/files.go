package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tapgw/internal/client"
)

const (
	fileChanges  = 15   // of each kind
	idlePrograms = 50   // what the gateway has room for
	manyFiles    = 1000 // in a directory
)

// providerFiles measures provider files with a real `tapgw serve`: the time from a file's change to the tools in
// the session, memory, and loading.
func providerFiles(ctx context.Context, o options, r *report) error {
	r.title("Providers by file", "metric\t\ttapgw\tof target\tat most\t")
	for _, measure := range []func(context.Context, *middle, options, *report) error{
		fileToTool, idleMemory, idleMCPMemory, idleSources, loading,
	} {
		m, err := startGateway(ctx, o.binary, nil)
		if err != nil {
			return err
		}
		err = os.MkdirAll(filepath.Join(m.removeHomeDir, "tapgw", "providers"), 0o700)
		if err == nil {
			err = measure(ctx, m, o, r)
		}
		m.stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// put writes a file below the gateway's config directory, as editors do.
func (m *middle) put(file, text string) error {
	path := filepath.Join(m.removeHomeDir, "tapgw", file)
	if err := os.WriteFile(path+".part", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// fileToTool changes a file several times; each time its tool has another name.
func fileToTool(ctx context.Context, m *middle, _ options, r *report) error {
	if err := os.MkdirAll(filepath.Join(m.removeHomeDir, "tapgw", "dropins"), 0o700); err != nil {
		return err
	}
	if err := m.put("providers/drop.toml", fmt.Sprintf("kind = \"tools\"\ndir = %q\n",
		filepath.Join(m.removeHomeDir, "tapgw", "dropins"))); err != nil {
		return err
	}
	live, err := watch(ctx, m, "live", true)
	if err != nil {
		return err
	}
	for _, kind := range []struct{ name, file, text string }{
		{"http", "providers/web.toml",
			"kind = \"http\"\n[tools.%s]\ndescription = \"d\"\nurl = \"http://127.0.0.1:1/\"\n"},
		{"tools", "dropins/drop.tool.toml", "name = %q\ndescription = \"d\"\nkind = \"read\"\ncommand = [\"true\"]\n"},
	} {
		var took []time.Duration
		for i := range fileChanges {
			if err := pause(ctx, 300*time.Millisecond); err != nil { // the last one is over
				return err
			}
			tool := fmt.Sprintf("%s_%d", kind.name, i)
			began := time.Now()
			if err := m.put(kind.file, fmt.Sprintf(kind.text, tool)); err != nil {
				return err
			}
			at, err := live.wait(ctx, tool)
			if err != nil {
				return err
			}
			took = append(took, at.Sub(began))
		}
		for _, v := range []struct {
			name string
			took time.Duration
		}{{"median", median(took)}, {fmt.Sprintf("slowest of %d", fileChanges), slices.Max(took)}} {
			ms := micros(int64(v.took)) / 1e3
			r.row(fmt.Sprintf("a changed file of kind %s to its tool in the session, %s (500 ms)", kind.name, v.name),
				"", fmt.Sprintf("%.0f ms", ms), ms/500, 1, false)
		}
	}
	return nil
}

// idleMemory measures the memory of as many idle programs as the gateway allows.
func idleMemory(ctx context.Context, m *middle, o options, r *report) error {
	binary, err := filepath.Abs(o.binary)
	if err != nil {
		return err
	}
	file := fmt.Sprintf("kind = \"command\"\nname = \"weather\"\ncommand = [%q, \"__demo-provider\"]\n", binary)
	mib, err := m.grownBy(ctx, file, "get_weather")
	if err != nil {
		return err
	}
	r.row(fmt.Sprintf("%d idle programs, anonymous memory of the gateway more (30 MiB)", idlePrograms), "",
		fmt.Sprintf("%.1f MiB", mib), mib/30, 1, false)
	return nil
}

// idleMCPMemory measures the memory of as many idle MCP servers on HTTP.
func idleMCPMemory(ctx context.Context, m *middle, o options, r *report) error {
	url, stop, err := startMCPServer(ctx, o.self)
	if err != nil {
		return err
	}
	defer stop()
	mib, err := m.grownBy(ctx, fmt.Sprintf("kind = \"mcp\"\nurl = %q\n", url), "echo")
	if err != nil {
		return err
	}
	r.row(fmt.Sprintf("%d idle MCP servers on HTTP, anonymous memory of the gateway more (20 MiB)", idlePrograms), "",
		fmt.Sprintf("%.1f MiB", mib), mib/20, 1, false)
	return nil
}

// idleSources measures the memory of as many sources of events that wait for their time, and that they do nothing
// meanwhile.
func idleSources(ctx context.Context, m *middle, _ options, r *report) error {
	if _, err := watch(ctx, m, "live", true); err != nil {
		return err
	}
	c, err := client.New(client.Options{URL: m.url, Token: m.admin})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := waitUntilIdle(ctx); err != nil {
		return err
	}
	before, err := m.memory()
	if err != nil {
		return err
	}
	for i := range manyFiles {
		if err := m.put(fmt.Sprintf("providers/s%d.toml", i),
			"kind = \"source\"\nrun = [\"true\"]\ncron = \"0 0 1 1 *\"\n"); err != nil {
			return err
		}
	}
	for waiting := 0; waiting < manyFiles; {
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		list, err := c.Sources(ctx)
		if err != nil {
			return err
		}
		waiting = 0
		for _, s := range list {
			if !s.NextRunAt.IsZero() {
				waiting++
			}
		}
	}
	if err := waitUntilIdle(ctx); err != nil {
		return err
	}
	after, err := m.memory()
	mib := float64(after.anonymous-before.anonymous) / (1 << 20)
	r.row(fmt.Sprintf("%d idle sources of events, anonymous memory of the gateway more (10 MiB)", manyFiles), "",
		fmt.Sprintf("%.1f MiB", mib), mib/10, 1, false)
	return err
}

// grownBy returns the MiB of anonymous memory that idlePrograms provider files of one text add, once a session has the
// tool of each, under a prefix of its own.
func (m *middle) grownBy(ctx context.Context, text, tool string) (float64, error) {
	live, err := watch(ctx, m, "live", true)
	if err != nil {
		return 0, err
	}
	if err := waitUntilIdle(ctx); err != nil {
		return 0, err
	}
	before, err := m.memory()
	if err != nil {
		return 0, err
	}
	for i := range idlePrograms {
		if err := m.put(fmt.Sprintf("providers/p%d.toml", i), text+fmt.Sprintf("prefix = \"p%d_\"\n", i)); err != nil {
			return 0, err
		}
	}
	for i := range idlePrograms {
		if _, err := live.wait(ctx, fmt.Sprintf("p%d_%s", i, tool)); err != nil {
			return 0, err
		}
	}
	if err := waitUntilIdle(ctx); err != nil {
		return 0, err
	}
	after, err := m.memory()
	return float64(after.anonymous-before.anonymous) / (1 << 20), err
}

// loading measures loading a directory of many files that start no process.
func loading(ctx context.Context, m *middle, _ options, r *report) error {
	for i := range manyFiles {
		text := fmt.Sprintf("kind = \"command\"\ncommand = [\"true\"]\nenv = { N = \"%d\" }\n"+
			"sessions = \"each\"\nallow = [\"get_*\"]\n", i)
		if err := m.put(fmt.Sprintf("providers/p%d.toml", i), text); err != nil {
			return err
		}
	}
	c, err := client.New(client.Options{URL: m.url, Token: m.admin})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := waitUntilIdle(ctx); err != nil {
		return err
	}
	var took []time.Duration
	for range 9 {
		began := time.Now()
		if _, err := c.Reload(ctx); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	ms := micros(int64(median(took))) / 1e3
	r.row(fmt.Sprintf("tapctl reload of %d files, median (200 ms)", manyFiles), "", fmt.Sprintf("%.0f ms", ms), ms/200,
		1, false)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
