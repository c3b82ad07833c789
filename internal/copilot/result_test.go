package copilot

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// toolResultTest is an outcome and what the model gets of it.
type toolResultTest struct {
	outcome  gateway.Outcome
	typ      string
	text     string
	mimeType string // of the binary result, "" for none
}

func checkToolResults(t *testing.T, tests map[string]toolResultTest) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := toolResult(tt.outcome)
			if *got.ResultType != tt.typ || got.TextResultForLlm != tt.text {
				t.Errorf("%s %q, want %s %q", *got.ResultType, got.TextResultForLlm, tt.typ,
					tt.text)
			}
			if (got.Error != nil) != tt.outcome.Failed() {
				t.Errorf("error: %v, want one: %v", got.Error, tt.outcome.Failed())
			}
			binary := got.BinaryResultsForLlm
			switch {
			case tt.mimeType == "" && len(binary) > 0:
				t.Errorf("binary results %+v, want none", binary)
			case tt.mimeType != "" &&
				(len(binary) != 1 || binary[0].MIMEType != tt.mimeType ||
					binary[0].Type != "image"):
				t.Errorf("binary results %+v, want one image of type %s", binary, tt.mimeType)
			}
		})
	}
}

func TestToolResult(t *testing.T) {
	checkToolResults(t, map[string]toolResultTest{
		"string":       {gateway.Outcome{Data: raw(`"a\n<b>"`)}, "success", "a\n<b>", ""},
		"empty string": {gateway.Outcome{Data: raw(`""`)}, "success", noResult, ""},
		"blank string": {gateway.Outcome{Data: raw(`" \n"`)}, "success", noResult, ""},
		"nothing":      {gateway.Outcome{}, "success", noResult, ""},
		"null":         {gateway.Outcome{Data: raw(`null`)}, "success", "null", ""},
		"number": {
			gateway.Outcome{Data: raw(`12345678901234567890`)},
			"success",
			"12345678901234567890",
			"",
		},
		"object": {
			gateway.Outcome{Data: raw("{ \"b\": 1,\n \"a\": [ 2 ] }")},
			"success",
			`{"b":1,"a":[2]}`,
			"",
		},
		"array": {gateway.Outcome{Data: raw(`[ ]`)}, "success", `[]`, ""},
	})
}

// An image in a data URL becomes a binary result; the rest of the data stays text.
func TestToolResultWithImage(t *testing.T) {
	const pixel = "data:image/png;base64,iVBORw0KGgo="
	checkToolResults(t, map[string]toolResultTest{
		"image": {
			gateway.Outcome{Data: raw(`{"image":"` + pixel + `"}`)},
			"success",
			"An image (image/png, 8 bytes).",
			"image/png",
		},
		"image and more": {
			gateway.Outcome{Data: raw(`{"image":"` + pixel + `","page":2}`)},
			"success",
			`{"page":2}`,
			"image/png",
		},
		"image by name": {gateway.Outcome{Data: raw(`{"image":"cat.png"}`)}, "success",
			`{"image":"cat.png"}`, ""},
		"image broken": {
			gateway.Outcome{Data: raw(`{"image":"data:image/png;base64,%%%"}`)},
			"success",
			`{"image":"data:image/png;base64,%%%"}`,
			"",
		},
		"data URL no image": {
			gateway.Outcome{Data: raw(`{"image":"data:text/plain,hi"}`)},
			"success",
			`{"image":"data:text/plain,hi"}`,
			"",
		},
	})
}

// The text of a failed call begins with its code.
func TestToolResultOfFailure(t *testing.T) {
	checkToolResults(t, map[string]toolResultTest{
		"timeout": {
			gateway.Outcome{ErrorCode: protocol.CodeTimeout, Error: "too slow"},
			"timeout",
			"TIMEOUT: too slow",
			"",
		},
		"denied": {gateway.Outcome{ErrorCode: protocol.CodeDenied, Error: "no"}, "denied",
			"DENIED: no", ""},
		"unauthorized": {
			gateway.Outcome{ErrorCode: protocol.CodeUnauthorized, Error: "who?"},
			"rejected",
			"UNAUTHORIZED: who?",
			"",
		},
		"disconnected": {
			gateway.Outcome{ErrorCode: protocol.CodeDisconnected, Error: "gone"},
			"failure",
			"DISCONNECTED: gone",
			"",
		},
		"without a reason": {
			gateway.Outcome{ErrorCode: protocol.CodeInternal},
			"failure",
			"INTERNAL: the tool gave no reason",
			"",
		},
		"failed with data": {
			gateway.Outcome{ErrorCode: protocol.CodeInternal, Error: "x", Data: raw(`"data"`)},
			"failure",
			"INTERNAL: x",
			"",
		},
	})
}

func TestToolResultOfFile(t *testing.T) {
	tests := map[string]struct {
		file gateway.File
		text string
		typ  string // of the binary result, "" for none
	}{
		"text": {
			gateway.File{Name: "a.txt", MimeType: "text/plain", Content: []byte("hello")},
			"hello",
			"",
		},
		"JSON": {
			gateway.File{Name: "a.json", MimeType: "application/json", Content: []byte("{}")},
			"{}",
			"",
		},
		"empty": {gateway.File{Name: "a.txt", MimeType: "text/plain"}, noResult, ""},
		"image": {
			gateway.File{Name: "a.png", MimeType: "image/png", Content: []byte("\x89PNG")},
			"a.png",
			"image",
		},
		"binary": {
			gateway.File{Name: "a.bin", MimeType: "application/octet-stream",
				Content: []byte{0, 1}},
			"a.bin",
			"resource",
		},
		"text that is not": {
			gateway.File{Name: "b.txt", MimeType: "text/plain", Content: []byte("\xff\xfe\x00")},
			"b.txt",
			"resource",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := toolResult(gateway.Outcome{File: &tt.file})
			if *got.ResultType != "success" || !strings.Contains(got.TextResultForLlm, tt.text) {
				t.Errorf("%s %q, want %q", *got.ResultType, got.TextResultForLlm, tt.text)
			}
			if tt.typ == "" {
				if len(got.BinaryResultsForLlm) > 0 {
					t.Errorf("a binary result: %+v, want none", got.BinaryResultsForLlm)
				}
				return
			}
			if len(got.BinaryResultsForLlm) != 1 ||
				string(got.BinaryResultsForLlm[0].Type) != tt.typ ||
				got.BinaryResultsForLlm[0].MIMEType != tt.file.MimeType {
				t.Fatalf(
					"binary results: %+v, want one of %v and type %v",
					got.BinaryResultsForLlm, tt.typ, tt.file.MimeType,
				)
			}
			if data, err := base64.StdEncoding.DecodeString(
				got.BinaryResultsForLlm[0].Data); err != nil ||
				!bytes.Equal(data, tt.file.Content) {
				t.Errorf("the content: %q, %v, want no error and %q", data, err, tt.file.Content)
			}
		})
	}
}

func raw(s string) protocol.Raw { return protocol.Raw(s) }

// A model gets all images that it can be shown, and reads where the others are.
func TestPartsResult(t *testing.T) {
	got := toolResult(gateway.Outcome{Content: []protocol.Part{
		{Type: protocol.PartText, Text: "look"},
		{Type: protocol.PartImage, MimeType: "image/png", Data: []byte("a")},
		{Type: protocol.PartImage, MimeType: "image/png", Data: make([]byte, maxImage+1),
			File: &protocol.FileRef{Path: "/p/large.png"}},
		{Type: protocol.PartResource, URI: "mem://b", MimeType: "image/gif", Data: []byte("b")},
		{Type: protocol.PartAudio, MimeType: "audio/wav", Data: []byte("c"),
			File: &protocol.FileRef{Path: "/p/c.wav"}},
		{Type: protocol.PartResource, URI: "mem://\x1b", Name: "d", MimeType: "text/plain"},
		{Type: protocol.PartResource, URI: "mem://e", Text: "e"},
	}})
	want :=
		"look\n[image: image/png, 1 bytes]\n[image: image/png, 3145729 bytes, in the file /p/large.png]\n" +
			"[resource mem://b: image/gif, 1 bytes]\n[sound: audio/wav, 1 bytes, in the file /p/c.wav]\n" +
			`[resource mem://\x1b: d, text/plain]` + "\n[resource mem://e]\ne"
	if got.TextResultForLlm != want {
		t.Errorf("the text is\n%s\nwant\n%s", got.TextResultForLlm, want)
	}
	var images []string
	for _, b := range got.BinaryResultsForLlm {
		images = append(images, string(b.Type)+" "+b.MIMEType+" "+b.Data)
	}
	if want := "image image/png YQ==, image image/gif Yg=="; strings.Join(images, ", ") != want {
		t.Errorf("the model is shown %q, want %q", images, want)
	}
}
