//go:build runtime

package copilot

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// TestCommands: a session offers the runtime's commands and runs them: those that say something,
// and those that make a prompt, of which people see what they wrote. What changes permissions is
// neither offered nor run.
func TestCommands(t *testing.T) {
	g := newRig(t)
	s := g.start()
	h := s.info
	list, err := h.Commands(g.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
		if c.Description == "" {
			t.Errorf("/%s has no description, want one", c.Name)
		}
	}
	if !slices.Contains(names, "compact") || !slices.Contains(names, "review") ||
		slices.Contains(names, "allow-all") || slices.Contains(names, "cwd") {
		t.Errorf("the session offers %q, want compact and review, and neither allow-all nor cwd",
			names)
	}
	at := slices.IndexFunc(list, func(c adminapi.Command) bool { return c.Name == "chronicle" })
	if at < 0 || len(list[at].Choices) < 3 || list[at].Hint == "" {
		t.Errorf("chronicle is %+v, want its choices", list)
	}
	s.turn("hello")
	asked := len(g.model.Requests())
	if r, err := h.RunCommand(g.ctx, "usage", ""); err != nil || r.Prompt != "" ||
		!strings.Contains(r.Text, "Session Usage") {
		t.Errorf("usage: %+v, %v; want its text", r, err)
	}
	r, err := h.RunCommand(g.ctx, "security-review", "the login")
	if err != nil || r.Shown != "Security Review: the login" ||
		!strings.Contains(r.Prompt, "security") {
		t.Fatalf("security-review: %+v, %v; want a prompt", r, err)
	}
	if n := len(g.model.Requests()); n != asked {
		t.Errorf("the commands asked the model %d times, want none", n-asked)
	}
	n := s.idles()
	s.prompt(gateway.Prompt{Text: r.Prompt, Shown: r.Shown, Source: gateway.SourceUser})
	s.waitIdle(n + 1)
	requests := g.model.Requests()
	if said := requests[len(requests)-1].LastUser(); !strings.Contains(said, r.Prompt) {
		t.Errorf("the model got %q, want the command's prompt", said)
	}
	s.wait("the prompt that people see", func() bool {
		return slices.ContainsFunc(s.events, func(e gateway.Event) bool {
			return e.UserMessage == r.Shown
		})
	})
	for name, code := range map[string]protocol.Code{
		"allow-all": protocol.CodeNotFound, "yolo": protocol.CodeNotFound,
		"ALLOW-ALL": protocol.CodeNotFound, "/allow-all": protocol.CodeNotFound,
		"nosuch": protocol.CodeNotFound, "research": protocol.CodeInvalidState,
		"chronicle": protocol.CodeInvalidArguments,
	} {
		_, err := h.RunCommand(g.ctx, name, "")
		if e, ok := errors.AsType[*protocol.Error](err); !ok || e.Code != code {
			t.Errorf("%s: %v, want %s", name, err, code)
		}
	}
}

// TestUploads: images and short texts that a prompt brings reach the model, and all else as a file
// that the session may read.
func TestUploads(t *testing.T) {
	g := newRig(t)
	s := g.start()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	png, err := base64.StdEncoding.DecodeString(pixel)
	if err != nil {
		t.Fatal(err)
	}
	upload := func(name, mime, content string) gateway.Attachment {
		path := filepath.Join(dir, "1-"+name)
		write(t, path, content)
		return gateway.Attachment{Path: path, Name: name, MIME: mime}
	}
	large := strings.Repeat("a line of a large text\n", maxInline/20)
	list := []gateway.Attachment{
		upload("shot.png", "text/plain", string(png)), upload("notes.csv", "text/csv", "one,two\n"),
		upload("paper.pdf", "application/pdf", "%PDF-1.4\x00of a paper"),
		upload("large.log", "", large),
		upload("drawing.svg", "image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg'/>"),
	}
	n := s.idles()
	s.prompt(gateway.Prompt{Text: "look", Source: gateway.SourceUser, Attachments: list})
	s.waitIdle(n + 1)
	body := string(g.model.Requests()[0].Body)
	for _, want := range []string{pixel, "one,two", "notes.csv", "text/csv", list[2].Path,
		list[3].Path, "svg xmlns"} {
		if !strings.Contains(body, want) {
			t.Errorf("the model did not get %q", want)
		}
	}
	if strings.Contains(body, "a line of a large text") {
		t.Error("the model got all of the large text, want its path")
	}
	s.turn("call:view " +
		string(rawJSON(map[string]any{"path": list[3].Path, "view_range": []int{1, 2}})))
	if !strings.Contains(s.lastSaid(), "a line of a large text") {
		t.Errorf("reading the large text: %q, want its lines", s.lastSaid())
	}
	if err := os.Remove(list[0].Path); err != nil {
		t.Fatal(err)
	}
	if err := s.host.Send(g.ctx, gateway.Prompt{Text: "look", Attachments: list[:1]}); err == nil ||
		!strings.Contains(err.Error(), "attachments[0]") {
		t.Errorf("a file that is gone: %v, want an error that names it", err)
	}
	s.turn("and now?")
	requests := g.model.Requests()
	if !strings.Contains(string(requests[len(requests)-1].Body), pixel) {
		t.Error("the image is lost with its file, want it in the history")
	}
}
