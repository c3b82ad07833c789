package outline

import "strings"

// skipPreamble skips the lines that may come before the introducing comment: blank
// lines, #! and declarations of the encoding.
func skipPreamble(lines []string) []string {
	for len(lines) > 0 {
		l := strings.TrimSpace(lines[0])
		if l != "" && !strings.HasPrefix(l, "#!") && !strings.Contains(l, "-*- coding") &&
			l != "<?php" &&
			l != `"use strict";` {
			return lines
		}
		lines = lines[1:]
	}
	return nil
}

// docstring is Python's docstring, or else the first comment.
func docstring(lines []string) string {
	rest := skipPreamble(lines)
	for len(rest) > 0 && (strings.HasPrefix(rest[0], "#") || strings.TrimSpace(rest[0]) == "") {
		rest = rest[1:]
	}
	text := strings.Join(rest, "\n")
	for _, quote := range []string{`"""`, `'''`} {
		if body, ok := strings.CutPrefix(strings.TrimLeft(text, "rRuU"), quote); ok {
			doc, _, _ := strings.Cut(body, quote)
			return tidy(doc)
		}
	}
	return hashComment(lines)
}

func hashComment(lines []string) string { return comment(lines, "#") }

// innerComment is Rust's first //! comment, or else the first other comment.
func innerComment(lines []string) string {
	if doc := comment(lines, "//!"); doc != "" {
		return doc
	}
	return blockComment(lines)
}

// blockComment is the first /* */ comment, or else the first // lines.
func blockComment(lines []string) string {
	rest := skipPreamble(lines)
	body, ok := strings.CutPrefix(strings.Join(rest, "\n"), "/*")
	if !ok {
		return comment(lines, "//")
	}
	body, _, _ = strings.Cut(body, "*/")
	var doc []string
	for l := range strings.SplitSeq(body, "\n") {
		doc = append(doc, strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(l), "*")))
	}
	return tidy(strings.Join(doc, "\n"))
}

// comment is the text of the first lines, as long as they begin with mark.
func comment(lines []string, mark string) string {
	var doc []string
	for _, l := range skipPreamble(lines) {
		body, ok := strings.CutPrefix(strings.TrimSpace(l), mark)
		if !ok {
			break
		}
		doc = append(doc, strings.TrimPrefix(strings.TrimLeft(body, "/#"), " "))
	}
	return tidy(strings.Join(doc, "\n"))
}

// tidy removes white space around a text and at the ends of its lines.
func tidy(doc string) string {
	lines := strings.Split(strings.TrimSpace(doc), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	return strings.Join(lines, "\n")
}
