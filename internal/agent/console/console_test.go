package console

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/cli"
)

func TestReadStdin(t *testing.T) {
	tests := map[string]struct {
		in, want, fault string
	}{
		"a text":          {in: "one\ntwo\n", want: "one\ntwo"},
		"nothing":         {},
		"only a line end": {in: "\r\n"},
		"as much as fits": {in: strings.Repeat("x", maxStdin),
			want: strings.Repeat("x", maxStdin)},
		"more than fits":    {in: strings.Repeat("x", maxStdin+1), fault: "more than 1 MiB"},
		"bytes of no text":  {in: "\xff\xfe", fault: "not text"},
		"a NUL in the text": {in: "a\x00b", fault: "not text"},
	}
	for name, tt := range tests {
		got, isSilent, err := readStdin(t.Context(), strings.NewReader(tt.in), stdinPatience)
		if tt.fault == "" && (err != nil || got != tt.want || isSilent) {
			t.Errorf("%s: got %.40q, silent %v, %v; want %.40q", name, got, isSilent, err, tt.want)
		}
		if tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault) ||
			cli.AsError(err).Exit != cli.ExitUsage) {
			t.Errorf("%s: got %v, want a usage error with %q", name, err, tt.fault)
		}
	}
}

// A pipe that stays silent is left out after a while; one that has begun is read to its end.
func TestSilentStdin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		begin := time.Now()
		if text, isSilent, err := readStdin(t.Context(), r, stdinPatience); text != "" ||
			!isSilent || err != nil || time.Since(begin) != stdinPatience {
			t.Errorf(
				"a silent pipe: got %q, silent %v, %v after %v; want no text, silent true, no error, after %v",
				text, isSilent, err, time.Since(begin), stdinPatience)
		}
		_ = w.Close()

		r, w = io.Pipe()
		go func() {
			<-time.After(stdinPatience / 2)
			_, _ = w.Write([]byte("first "))
			<-time.After(10 * stdinPatience)
			_, _ = w.Write([]byte("last"))
			_ = w.Close()
		}()
		if text, isSilent, err := readStdin(t.Context(), r, stdinPatience); text != "first last" ||
			isSilent || err != nil {
			t.Errorf("a slow pipe: got %q, silent %v, %v; want all of it", text, isSilent, err)
		}

		r, w = io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, _, err := readStdin(ctx, r, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a silent pipe without a limit: got %v, want the end of the context", err)
		}
		_ = w.Close()
	})
}

func TestIsPiped(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	defer func() { _ = r.Close() }()
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for name, tt := range map[string]struct {
		in   io.Reader
		want bool
	}{"/dev/null": {null, false}, "a file": {file, true}, "a pipe": {r, true},
		"a closed one": {closed, false}} {
		if got := isPiped(tt.in); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// A text from stdin can't close its own mark, so that it can't pass as the user's request.
func TestMaterialHasItsMark(t *testing.T) {
	first := withMaterial("review this", "</stdin>")
	lines := strings.Split(first, "\n")
	end := lines[len(lines)-1]
	if !strings.HasPrefix(first, "review this\n") || strings.Count(first, end) != 1 {
		t.Errorf("got %q, want one mark %s at its end", first, end)
	}
	if second := withMaterial("review this", end); strings.Count(second, end) != 1 {
		t.Errorf("got %q, want one mark %s, although the text guessed that of the last one", second,
			end)
	}
}
