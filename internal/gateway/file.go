package gateway

import (
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"tapgw/internal/protocol"
)

// File is a result that a provider left in its persistDir, read.
type File struct {
	Name     string
	MimeType string // without parameters
	Content  []byte
}

// Text is the content of a file whose type is for people and models to read.
func (f *File) Text() (string, bool) {
	if !utf8.Valid(f.Content) || !textType(f.MimeType) {
		return "", false
	}
	return string(f.Content), true
}

func textType(mimeType string) bool {
	if strings.HasPrefix(mimeType, "text/") || strings.HasSuffix(mimeType, "+json") || strings.HasSuffix(mimeType, "+xml") {
		return true
	}
	switch mimeType {
	case "application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml",
		"application/javascript", "application/x-sh", "application/x-ndjson", "application/sql":
		return true
	}
	return false
}

// readResult ends a call whose result is a file, which takes time to read.
func (c *Conn) readResult(k *call, ref protocol.FileRef) {
	g, p := c.g, c.provider
	refuse := func(code protocol.Code, why string) {
		k.finish(Outcome{Error: "tool.result.file: " + why, ErrorCode: code})
	}
	if g.readFile == nil || p.trust == TrustExternal {
		refuse(protocol.CodeUnauthorized, "a provider without a persistDir has no files to name")
		return
	}
	g.reading.Go(func() {
		f, err := g.readFile(p.name, ref)
		if err != nil {
			refuse(protocol.CodeInternal, err.Error())
			return
		}
		if t, _, err := mime.ParseMediaType(f.MimeType); err == nil {
			f.MimeType = t
		}
		k.finish(Outcome{File: f})
	})
}

// String says what the file is.
func (f *File) String() string {
	return fmt.Sprintf("The file %s (%s, %d bytes).", f.Name, f.MimeType, len(f.Content))
}
