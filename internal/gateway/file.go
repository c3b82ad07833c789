package gateway

import (
	"fmt"
	"strings"
	"unicode/utf8"
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

// String says what the file is.
func (f *File) String() string {
	return fmt.Sprintf("The file %s (%s, %d bytes).", f.Name, f.MimeType, len(f.Content))
}
