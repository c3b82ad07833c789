package copilot

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"tapgw/internal/jsonrpc"
)

// envFakeRuntime makes the test program a runtime that answers until it is pinged, and then says
// what the variable has.
const envFakeRuntime = "TAPGW_TEST_FAKE_RUNTIME"

func fakeRuntime(fault string) {
	in := bufio.NewReader(os.Stdin)
	for {
		data, err := jsonrpc.ReadFrame(in, 1<<20)
		if err != nil {
			return
		}
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		_ = json.Unmarshal(data, &request)
		if request.Method == "ping" {
			if !strings.HasPrefix(fault, "flood") {
				fmt.Print(fault)
				_, _ = io.Copy(io.Discard, os.Stdin)
				return
			}
			for err == nil {
				_, err = os.Stdout.WriteString(strings.Repeat("x", 64<<10))
			}
			return
		}
		body := fmt.Sprintf(
			`{"jsonrpc":"2.0","id":%s,"result":{"ok":true,"protocolVersion":3,"version":"9"}}`,
			request.ID)
		_, _ = os.Stdout.Write(jsonrpc.AppendFrame(nil, []byte(body)))
	}
}

// TestOddOutputEndsTheRuntime: a runtime that announces more than there is memory, or never ends a
// line, is killed with its reason, and takes no memory of the gateway.
func TestOddOutputEndsTheRuntime(t *testing.T) {
	const asked, atStart = "asked", "at the start"
	for name, tt := range map[string]struct{ when, output, want string }{
		"a length": {asked, "Content-Length: 99999999999999\r\n\r\n",
			"it sent a message of 99999999999999 bytes, more than 64 MiB"},
		"a flood": {asked, "flood", "a line of more than 1024 bytes"},
		"a text":  {asked, "Warning!\n", `"Warning!" is none: something else writes`},
		"a length at start": {atStart,
			"printf 'Content-Length: 99999999999999\\r\\n\\r\\n'; exec sleep 100",
			"more than 64 MiB"},
		"a flood at start": {atStart, "exec tr '\\0' x </dev/zero",
			"a line of more than 1024 bytes"},
		"many lines at start": {atStart, "exec yes X:y", "more than 16 lines"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "outlet-") // short, for the socket
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.RemoveAll(dir) }()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			script := tt.output
			if tt.when == asked {
				script = fmt.Sprintf("%s='%s' exec %s", envFakeRuntime, tt.output, self)
			}
			cli := filepath.Join(dir, "copilot")
			if err := os.WriteFile(cli, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			log := slog.New(slog.DiscardHandler)
			p, err := startProcess(t.Context(), Options{CLI: cli, Home: dir, Log: log}, dir, log)
			if tt.when == asked {
				if err != nil {
					t.Fatal(err)
				}
				go p.watch()
				p.checkAlive()
				<-p.gone
				err = p.cause
				p.stop(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("it ended with %v, want %q", err, tt.want)
			}
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
				t.Errorf("its output took %d bytes, want at most 16 MiB", took)
			}
		})
	}
}
