package gateway

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// File is the content of a result's file, which a provider wrote into its persistDir; at
// most 64 MiB. See docs/protocol.md, "File".
type File struct {
	Name     string
	MimeType string // without parameters
	Content  []byte
}

// Text returns the content as text; false when the type is not a text type or the content
// is not UTF-8. Text types are text/*, types that end in +json or +xml, and some more such
// as application/json.
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
	case "application/json", "application/xml", "application/yaml", "application/x-yaml",
		"application/toml", "application/javascript", "application/x-sh", "application/x-ndjson",
		"application/sql":
		return true
	}
	return false
}

// String describes the file in one sentence for a model that can't have the content: its
// name, type and size in bytes.
func (f *File) String() string {
	return fmt.Sprintf("The file %s (%s, %d bytes).", f.Name, f.MimeType, len(f.Content))
}
