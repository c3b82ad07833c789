package gateway

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// File is the content of a result's file, which a provider wrote into its persistDir. See
// docs/protocol.md, "File".
type File struct {
	Name     string
	MimeType string // without parameters
	Content  []byte
}

// Text returns the content as text; false when the type is not a text type or the content is
// not UTF-8.
func (f *File) Text() (string, bool) {
	if !utf8.Valid(f.Content) || !textType(f.MimeType) {
		return "", false
	}
	return string(f.Content), true
}

func textType(mimeType string) bool {
	if strings.HasPrefix(mimeType, "text/") || strings.HasSuffix(mimeType, "+json") ||
		strings.HasSuffix(mimeType, "+xml") {
		return true
	}
	switch mimeType {
	case "application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml",
		"application/javascript", "application/x-sh", "application/x-ndjson", "application/sql":
		return true
	}
	return false
}

// String describes the file: its name, type and size in bytes.
func (f *File) String() string {
	return fmt.Sprintf("The file %s (%s, %d bytes).", f.Name, f.MimeType, len(f.Content))
}
