// Package ownfile writes whole files of tapgw into directories that belong to other programs and to
// people: skills, hook files, extensions. Such a file has a mark, which is a digest of all the rest
// of it. A file without a mark, or with a wrong one, is a person's: it is never written and never
// removed.
package ownfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"tapgw/internal/lazyregexp"
)

// Form is the place of the mark in a kind of file. Beside the digest, the mark may count the
// directories that were made for the file, so that they go with it.
type Form struct {
	mark   *lazyregexp.Regexp // the groups are the digest and, if the form has it, the count
	put    func(text, digest string, made int) string
	counts bool
}

// Forms of files.
var (
	// FrontMatter is Markdown that begins with front matter. It counts no directories.
	FrontMatter = Form{
		mark: lazyregexp.New(`(?m)^metadata:\n  tapgw-sha256: ([0-9a-f]{64})\n`),
		put: func(text, digest string, _ int) string {
			front, body, _ := strings.Cut(strings.TrimPrefix(text, frontLine), "\n"+frontLine)
			return frontLine + front + "\nmetadata:\n  tapgw-sha256: " + digest + "\n" + frontLine +
				body
		},
	}
	// JSON is an object whose brace is on the first line. The mark becomes its first member.
	JSON = Form{
		mark: lazyregexp.New(
			`(?m)^  "tapgw": \{"sha256": "([0-9a-f]{64})", "directories": ([0-9])\},\n`),
		put: func(text, digest string, made int) string {
			return "{\n" + fmt.Sprintf("  \"tapgw\": {\"sha256\": %q, \"directories\": %d},\n",
				digest, made) +
				strings.TrimPrefix(text, "{\n")
		},
		counts: true,
	}
	// JavaScript is a program in JavaScript. The mark becomes its first line.
	JavaScript = Form{
		mark: lazyregexp.New(`(?m)^// tapgw-sha256: ([0-9a-f]{64}), directories: ([0-9])\n`),
		put: func(text, digest string, made int) string {
			return fmt.Sprintf("// tapgw-sha256: %s, directories: %d\n", digest, made) + text
		},
		counts: true,
	}
)

const frontLine = "---\n"

const (
	maxDirectories = 9    // that a mark can count
	allDirectories = 1000 // for a form without a count: every empty directory goes with the file
)

// read returns the text without its mark, and how many directories were made for it; ok is false if
// it is not ours.
func (f Form) read(text string) (plain string, made int, ok bool) {
	m := f.mark.FindStringSubmatch(text)
	if m == nil {
		return "", 0, false
	}
	made = allDirectories
	if f.counts {
		made, _ = strconv.Atoi(m[2])
	}
	plain = strings.Replace(text, m[0], "", 1)
	return plain, made, digest(plain) == m[1] && f.put(plain, m[1], made) == text
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
