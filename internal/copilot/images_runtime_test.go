//go:build runtime

package copilot

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func image(context.Context, string) gateway.Outcome {
	return gateway.Outcome{Data: raw(`{"image":"data:image/png;base64,` + pixel + `"}`)}
}

func TestImage(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.tool("shoot", image)
	s.turn("call:shoot")
	if body := string(g.model.Requests()[1].Body); !strings.Contains(body, pixel) {
		t.Error("the image did not reach the model, want it in the second request")
	}
}

// All images of a result reach the model, with its texts.
func TestImagesOfParts(t *testing.T) {
	const other = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
	g := newRig(t)
	s := g.start()
	s.tool("shoot", func(context.Context, string) gateway.Outcome {
		png, _ := base64.StdEncoding.DecodeString(pixel)
		gif, _ := base64.StdEncoding.DecodeString(other)
		return gateway.Outcome{Content: []protocol.Part{
			{Type: protocol.PartText, Text: "two of them"},
			{Type: protocol.PartImage, MimeType: "image/png", Data: png},
			{Type: protocol.PartImage, MimeType: "image/gif", Data: gif},
		}}
	})
	s.turn("call:shoot")
	body := string(g.model.Requests()[1].Body)
	for _, want := range []string{"two of them", pixel, other} {
		if !strings.Contains(body, want) {
			t.Errorf("the second request lacks %.40q, want the text and both images in it", want)
		}
	}
}

// A model that takes no images fails once, not in every turn that follows.
func TestImageRefused(t *testing.T) {
	g := newRigWith(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		if strings.Contains(string(r.Body), pixel) {
			return scriptmodel.Reply{Status: 400, Text: "content must be a string"}
		}
		return scriptmodel.Calls(r)
	})
	s := g.start()
	s.tool("shoot", image)
	s.turn("call:shoot")
	if errs := s.errors(); len(errs) != 1 {
		t.Errorf("errors: %q, want one", errs)
	}
	s.turn("hello")
	s.turn("call:shoot")
	if errs := s.errors(); len(errs) != 1 || s.lastSaid() != "An image (image/png, 70 bytes)." {
		t.Errorf(
			`after a refused image it said %q; errors: %q, want "An image (image/png, 70 bytes)." and one error`,
			s.lastSaid(), errs,
		)
	}
	if notes := s.allNotes(); strings.Count(notes, "from now on images are left out") != 1 {
		t.Errorf(`notes: %s, want "from now on images are left out" once`, notes)
	}
}
