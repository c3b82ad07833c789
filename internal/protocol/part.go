package protocol

import (
	"fmt"
	"strings"

	"tapgw/internal/visible"
)

// Types of a [Part].
const (
	PartText     = "text"
	PartImage    = "image"
	PartAudio    = "audio"
	PartResource = "resource"
)

// Part is one part of a result (docs/protocol.md, "Part"). An image and a sound have Data or File.
// A resource has a URI, and Text, Data or File; without these it is a link. The gateway reads File
// into Data.
type Part struct {
	Type        string   `json:"type"`
	Text        string   `json:"text,omitzero"`
	Data        []byte   `json:"data,omitzero"`
	MimeType    string   `json:"mimeType,omitzero"`
	URI         string   `json:"uri,omitzero"`
	Name        string   `json:"name,omitzero"`
	Description string   `json:"description,omitzero"`
	File        *FileRef `json:"file,omitzero"`
}

// String returns the part as a text, for a model or a person that can't get the part itself: a text
// unchanged, anything else as its type and size, and the path of its file.
func (p *Part) String() string {
	if p.Type == PartText {
		return p.Text
	}
	name := p.Type
	if p.Type == PartAudio {
		name = "sound"
	}
	about := []string{}
	for _, s := range []string{p.Name, p.Description, p.MimeType} {
		if s != "" {
			about = append(about, visible.Line(s))
		}
	}
	if p.URI != "" {
		name += " " + visible.Line(p.URI)
	}
	if p.Type == PartResource && p.Text != "" {
		return "[" + name + "]\n" + p.Text
	}
	if len(p.Data) > 0 {
		about = append(about, fmt.Sprintf("%d bytes", len(p.Data)))
	}
	if p.File != nil {
		about = append(about, "in the file "+visible.Line(p.File.Path))
	}
	if len(about) == 0 {
		return "[" + name + "]"
	}
	return "[" + name + ": " + strings.Join(about, ", ") + "]"
}
