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

// All users of the machine can read the arguments of the program that opens a
// browser: it gets a file, and the link is in that alone.
func TestOpenKeepsTheLinkOutOfArguments(t *testing.T) {
	dir := t.TempDir()
	page, pipe := filepath.Join(dir, "a page.html"), filepath.Join(dir, "argv")
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
	asked := make(chan string, 1)
	c := newTestCommand(t, io.Discard, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- string(body)
		_ = json.NewEncoder(w).Encode(map[string]string{"url": "http://h/signin?code=SECRET", "file": page})
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
	argv, err := os.ReadFile(pipe)
	if err != nil {
		t.Fatal(err)
	}
	want := "file://" + strings.ReplaceAll(page, " ", "%20")
	if string(argv) != want {
		t.Errorf("the browser's arguments are %s, want %s", argv, want)
	}
}
