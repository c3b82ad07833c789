//go:build runtime

package copilot

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/internal/gateway"
)

// TestAttachments: the model gets the lines of a selection, images, and the names of
// files and directories, which the session may read though they lie elsewhere; and
// the headers of the prompt come with its requests, not with the next.
func TestAttachments(t *testing.T) {
	g := newRig(t)
	s := g.start()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, "notes.txt")
	write(t, text, "one\ntwo\nthree\nfour\n")
	write(t, filepath.Join(dir, "other.txt"), "not attached")
	png, err := base64.StdEncoding.DecodeString(pixel)
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(dir, "pixel.png")
	write(t, image, string(png))
	docs := filepath.Join(dir, "docs")
	if err := os.Mkdir(docs, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(docs, "in.txt"), "inside of docs")

	n := s.idles()
	s.prompt(gateway.Prompt{
		Text: "look", Source: gateway.SourceUser, Headers: map[string]string{"X-Trace": "abc-1"},
		Attachments: []gateway.Attachment{{Path: text}, {Path: text, First: 2, Last: 3},
			{Path: image}, {Path: docs}},
	})
	s.waitIdle(n + 1)
	request := g.model.Requests()[0]
	said := request.LastUser()
	for _, want := range []string{text + " (5 lines)", "(lines 2-3)", "two\nthree\n",
		docs + " (1 items)"} {
		if !strings.Contains(said, want) {
			t.Errorf("the model was not told %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "four\n") || !strings.Contains(string(request.Body), pixel) {
		t.Errorf("too much of the file, or no image: %s, want no %q in it and %q in it",
			request.Body, "four\n", pixel)
	}
	if got := request.Header.Get("X-Trace"); got != "abc-1" {
		t.Errorf(`the header of the prompt: %q, want "abc-1"`, got)
	}
	for path, want := range map[string]string{
		text: "three", filepath.Join(docs, "in.txt"): "inside of docs",
		filepath.Join(dir, "other.txt"): "the gateway's policy",
	} {
		s.turn("call:view " + string(rawJSON(map[string]string{"path": path})))
		if !strings.Contains(s.lastSaid(), want) {
			t.Errorf("reading %s: %q, want %q", path, s.lastSaid(), want)
		}
	}
	requests := g.model.Requests()
	if got := requests[len(requests)-1].Header.Get("X-Trace"); got != "" {
		t.Errorf(`the header stays: %q, want ""`, got)
	}

	// Wrong ones are refused by name, and the session does not hear of the prompt.
	for want, a := range map[string]gateway.Attachment{
		"attachments[0]: " + text + " has 4 lines, not 5": {Path: text, First: 4, Last: 5},
		"is no text and has no lines":                     {Path: image, First: 1, Last: 1},
		"is a directory and has no lines":                 {Path: docs, First: 1, Last: 1},
		"no such file":                                    {Path: text + "x"},
	} {
		err := s.host.Send(g.ctx,
			gateway.Prompt{Text: "look", Attachments: []gateway.Attachment{a}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", a, err, want)
		}
	}
	s.turn("still here?")
	if s.lastSaid() != "You said: still here?" {
		t.Errorf(`afterwards: %q, want "You said: still here?"`, s.lastSaid())
	}
}
