package builtin

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"tapgw/tools"
	"tapgw/tools/internal/outline"
)

type getDocInfoIn struct {
	FilePaths []string `json:"filePaths" jsonschema:"The files: absolute paths or relative to the workspace."`
}

var _ = add(&tools.Tool{
	Name: "get_doc_info",
	Description: "Say in brief what is in files: language, size, the comment that introduces " +
		"each, and its " +
		"declarations with their line numbers. It costs much less than reading them.",
	Kind: tools.Read,
}, getDocInfo)

// How much of a file is shown.
const (
	maxSymbols = 80
	maxDoc     = 600 // bytes
	maxSymbol  = 160 // bytes
)

func getDocInfo(ctx context.Context, env *access, in getDocInfoIn) (tools.Result, error) {
	return eachFile(in.FilePaths, func(path string) (string, error) {
		at, err := env.files().At(ctx, path, false)
		if err != nil {
			return "", err
		}
		defer at.Close()
		source, err := at.ReadText()
		if err != nil {
			return "", err
		}
		return docInfo(at.Name, source), nil
	})
}

// docInfo formats the outline of a source file.
func docInfo(name, source string) string {
	lines := strings.Count(source, "\n")
	if source != "" && !strings.HasSuffix(source, "\n") {
		lines++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n%s, %d lines, %d bytes", name,
		cmp.Or(outline.Language(name), "unknown language"), lines, len(source))
	for _, trait := range []struct {
		has  bool
		what string
	}{
		{strings.HasPrefix(source, "\uFEFF"), "BOM"},
		{strings.Contains(source, "\r\n"), "CRLF"},
		{!utf8.ValidString(source), "not UTF-8"},
		{source != "" && !strings.HasSuffix(source, "\n"), "no newline at the end"},
	} {
		if trait.has {
			b.WriteString(", " + trait.what)
		}
	}
	o := outline.Of(name, source)
	if o.Doc != "" {
		b.WriteString("\n\n" + brief(o.Doc, maxDoc))
	}
	if len(o.Symbols) > 0 {
		b.WriteByte('\n')
	}
	for _, s := range o.Symbols[:min(len(o.Symbols), maxSymbols)] {
		fmt.Fprintf(&b, "\n%s%d: %s", strings.Repeat("  ", min(s.Depth, 8)), s.Line,
			brief(s.Text, maxSymbol))
	}
	if n := len(o.Symbols) - maxSymbols; n > 0 {
		fmt.Fprintf(&b, "\n[%d more declarations: read the file from line %d]", n,
			o.Symbols[maxSymbols].Line)
	}
	return b.String()
}

// brief cuts a text to maxBytes bytes, at the end of a character.
func brief(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	for maxBytes > 0 && !utf8.RuneStart(s[maxBytes]) {
		maxBytes--
	}
	return s[:maxBytes] + "…"
}
