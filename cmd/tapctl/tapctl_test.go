package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/taptest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestHelpIsReviewed: a change of what users read shows in review, and no command
// goes without an example.
func TestHelpIsReviewed(t *testing.T) {
	var all bytes.Buffer
	var walk func(path []string, commands []*ucli.Command)
	walk = func(path []string, commands []*ucli.Command) {
		line := append(append([]string{"tapctl"}, path...), "--help")
		all.WriteString("$ " + strings.Join(line, " ") + "\n\n")
		begin := all.Len()
		if exit := run(line, strings.NewReader(""), &all, &all); exit != 0 {
			t.Errorf("%v: got exit code %d, want 0", line, exit)
		}
		if !strings.Contains(all.String()[begin:], "Examples:\n") {
			t.Errorf("%v has no example, want %q in it", line, "Examples:\n")
		}
		all.WriteByte('\n')
		for _, c := range commands {
			walk(append(slices.Clip(path), c.Name), c.Subcommands)
		}
	}
	walk(nil, newApp().Commands)
	golden := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.WriteFile(golden, all.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), all.String()); diff != "" {
		t.Errorf("go test ./cmd/tapctl -run Help -update writes it anew:\n%s", diff)
	}
}

func TestTurnShowsTheAnswerOnce(t *testing.T) {
	for _, tc := range []struct {
		lines       string
		out, errors string
	}{
		{`{"callback":"onMessage","messageId":"m","delta":"a"} {"callback":"onMessage","messageId":"m","delta":"b"} {"callback":"onEndMessage","messageId":"m","completeContent":"ab"}`, "ab\n", ""},
		{`{"callback":"onEndMessage","messageId":"m","completeContent":"whole\n"}`, "whole\n", ""},
		{`{"callback":"onMessage","messageId":"m","delta":"a"} {"callback":"onStartToolExecution","toolName":"t","toolArguments":"{}"} {"callback":"onEndToolExecution","error":{"code":"TIMEOUT","message":"late"}} {"callback":"onEndToolExecution","error":{"message":"odd"}}`,
			"a\n", "  t {}\n  failed: TIMEOUT late\n  failed: odd\n"},
		{`{"callback":"onEndToolExecution","result":{"content":"one\ntwo"}} {"callback":"onGeneratedUserPrompt","prompt":"go"}`, "", "  = one…\n  prompt: go\n"},
		{`{"callback":"onMessage","messageId":"m","delta":"\u001b[31mred"} {"callback":"onEndMessage","messageId":"m"}`,
			"red\n", ""},
	} {
		var out, errs bytes.Buffer
		shown := &turn{out: &cli.Output{W: &out, Err: &errs}}
		dec := json.NewDecoder(strings.NewReader(tc.lines))
		for dec.More() {
			var l client.LiveLine
			if err := dec.Decode(&l); err != nil {
				t.Fatal(err)
			}
			if err := shown.show(l); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != tc.out || errs.String() != tc.errors {
			t.Errorf("%s:\n got %q %q\nwant %q %q", tc.lines, out.String(), errs.String(), tc.out,
				tc.errors)
		}
	}
}

func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for d, want := range map[time.Duration]string{
			-time.Second: "0s ago", 59 * time.Second: "59s ago", 61 * time.Second: "1m ago",
			90 * time.Minute: "1h30m ago",
		} {
			if got := ago(now.Add(-d)); got != want {
				t.Errorf("%v: got %s, want %s", d, got, want)
			}
		}
		for text, want := range map[string]time.Time{
			"": {}, "10m": now.Add(-10 * time.Minute),
			"2026-01-02T03:04:05Z": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		} {
			if got, err := sinceTime(text, now); err != nil || !got.Equal(want) {
				t.Errorf("%q: got %v (%v), want %v", text, got, err, want)
			}
		}
		for _, text := range []string{"-10m", "0s", "yesterday"} {
			if _, err := sinceTime(text, now); cli.AsError(err).Exit != cli.ExitUsage {
				t.Errorf("%q: got %v, want a usage error", text, err)
			}
		}
	})
}

func TestDataText(t *testing.T) {
	for data, want := range map[string]string{
		`"a\nb"`: "a\nb", `{ "a": "<b>" }`: `{"a":"<b>"}`, `null`: "null", `7`: "7",
		`"\u001b[1mx"`: "x",
	} {
		if got := dataText(json.RawMessage(data)); got != want {
			t.Errorf("%s: got %q, want %q", data, got, want)
		}
	}
}

// newTestCommand returns a command that runs against a gateway that answers as h does.
func newTestCommand(t *testing.T, out io.Writer, h http.HandlerFunc) *command {
	t.Helper()
	t.Setenv("COPILOT_HOME", t.TempDir())
	web := httptest.NewServer(taptest.Proving(h, "t"))
	gw, err := client.New(client.Options{URL: web.URL, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gw.Close(); web.Close() })
	app := &ucli.App{}
	flags := ucli.NewContext(app, flag.NewFlagSet("", flag.ContinueOnError),
		&ucli.Context{Context: t.Context()})
	return &command{flags, t.Context(), &cli.Output{W: out, Err: io.Discard, Terminal: true}, gw}
}

func TestWatchDrawsAnewOnATerminal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	frames := &frames{enough: func(text string) bool {
		return strings.Contains(text, "all is well") && strings.Contains(text, "p-1") &&
			strings.Contains(text, "one?") &&
			strings.Contains(text, "042917")
	}, done: cancel}
	c := newTestCommand(t, frames, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/events" {
			for name, data := range map[string]string{
				"sessions":  `[{"id":"0123456789","label":"here","host":"local","state":"idle"}]`,
				"providers": `[{"id":"p-1","name":"sample","state":"bound"}]`,
				"pairings":  `[{"provider":"tab","code":"042917","session":"0123456789"}]`,
				"questions": `[{"id":"q-1","session":"0123456789","kind":"input","message":"Which\u001b[2J one?"}]`,
				"later":     `{}`,
			} {
				_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\nid: 1.1\n\n:\n\n", name, data)
			}
		} else {
			_, _ = io.WriteString(w,
				`{"ts":"2026-01-02T03:04:05Z","level":"info","source":"gateway","message":"all is well"}`+"\n")
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	w := newWatcher(c)
	err := w.run(ctx)
	cancel()
	w.reading.Wait()
	if !errors.Is(err, context.Canceled) && cli.AsError(err).Code != cli.CodeCancelled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	for _, part := range []string{
		"\x1b[H\x1b[2J", "0123456789  here", "p-1  sample", "01234567…  ",
		"type 042917 into tab", "question  01234567…  Which one?",
	} {
		if !strings.Contains(frames.last, part) {
			t.Errorf("got\n%s\nwant …%s…", frames.last, part)
		}
	}
}

// frames keeps the last frame that was drawn, and calls done once it is enough.
type frames struct {
	last   string
	enough func(string) bool
	done   func()
}

func (f *frames) Write(p []byte) (int, error) {
	if f.last = string(p); f.enough(f.last) {
		f.done()
	}
	return len(p), nil
}
