package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tapgw/internal/cli"
)

// TestLogIsFollowedWhenItBeginsAnew: who follows it sees each line once, whole, also
// when the next gateway has truncated the file.
func TestLogIsFollowedWhenItBeginsAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.log")
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("zero\none\ntw")
	ctx, cancel := context.WithCancel(t.Context())
	lines, ended := make(chan string), make(chan error, 1)
	go func() {
		ended <- logFile(path).print(ctx, 1, true, func(line string) error { lines <- line; return nil })
	}()
	next := func(want string) {
		t.Helper()
		if got := <-lines; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	next("one")
	write("o\nthree\n")
	next("two")
	next("three")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write("new\n")
	next("new")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestLogLinesForPeopleAndPrograms: with --json whatever is in a log is an object.
func TestLogLinesForPeopleAndPrograms(t *testing.T) {
	for line, want := range map[string][2]string{
		`{"time":"odd","level":"WARN","msg":"b\u001b[2Jad","n":1,"o":{"a":"b"}}`: {"odd  WARN   bad  n=1  o={\"a\":\"b\"}\n", `{"time":"odd","level":"WARN","msg":"b\u001b[2Jad","n":1,"o":{"a":"b"}}` + "\n"},
		"panic: \x1b[1mno": {"panic: no\n", `{"msg":"panic: \u001b[1mno"}` + "\n"},
		`{"msg":"cut`:      {"{\"msg\":\"cut\n", `{"msg":"{\"msg\":\"cut"}` + "\n"},
		`["msg"]`:          {"[\"msg\"]\n", `{"msg":"[\"msg\"]"}` + "\n"},
	} {
		for i, asJSON := range []bool{false, true} {
			var b bytes.Buffer
			if err := printLog(&cli.Output{W: &b, JSON: asJSON}, line); err != nil || b.String() != want[i] {
				t.Errorf("%q, JSON %v: %q, %v", line, asJSON, b.String(), err)
			}
		}
	}
}
