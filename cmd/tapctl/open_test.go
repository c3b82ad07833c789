//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fakeBrowser is a browser that writes its arguments to a pipe. It returns the path of a page that
// is not there yet.
func fakeBrowser(t *testing.T) (page, pipe string) {
	t.Helper()
	dir := t.TempDir()
	page, pipe = filepath.Join(dir, "a page.html"), filepath.Join(dir, "argv")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"xdg-open", "open"} {
		script := fmt.Sprintf("#!/bin/sh\nprintf '%%s' \"$*\" > '%s'\n", pipe)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	return page, pipe
}

// gotPage checks that the browser got a page and nothing else.
func gotPage(t *testing.T, page, pipe string) {
	t.Helper()
	argv, err := os.ReadFile(pipe)
	if err != nil {
		t.Fatal(err)
	}
	if want := "file://" + strings.ReplaceAll(page, " ", "%20"); string(argv) != want {
		t.Errorf("the browser's arguments are %s, want %s", argv, want)
	}
}

// A login opens its link as tapctl open does, in a terminal, and prints it without control
// characters.
func TestLoginKeepsTheLinkOutOfArguments(t *testing.T) {
	page, pipe := fakeBrowser(t)
	if err := os.WriteFile(page, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c := newTestCommand(t, &out, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != `{"file":true}` || r.URL.Path != "/api/v1/providers/far/login" {
			t.Errorf("got the request %s %s, want one of a login with a file", r.URL.Path, body)
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = fmt.Fprintf(w,
			"{\"url\":\"http://h/?state=SECRET\\u001b[2J\",\"file\":%q}\n{\"done\":true}\n", page)
	})
	if err := loginProvider(c, "far"); err != nil {
		t.Fatal(err)
	}
	gotPage(t, page, pipe)
	if want := "http://h/?state=SECRET\\x1b[2J\n"; out.String() != want {
		t.Errorf("the command prints %q, want %q", out.String(), want)
	}
}

// All users of the machine can read the arguments of the program that opens a
// browser: it gets a file, and the link is in that alone.
func TestOpenKeepsTheLinkOutOfArguments(t *testing.T) {
	page, pipe := fakeBrowser(t)
	asked := make(chan string, 1)
	c := newTestCommand(t, io.Discard, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- string(body)
		_ = json.NewEncoder(w).Encode(map[string]string{"url": "http://h/signin?code=SECRET",
			"file": page})
	})
	if browse(page) {
		t.Error("browse of a file that is not there is true, want false")
	}
	if err := os.WriteFile(page, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openPage(c); err != nil {
		t.Fatal(err)
	}
	if body := <-asked; body != `{"file":true}` {
		t.Errorf("got the request %s, want one without a file", body)
	}
	gotPage(t, page, pipe)
}
