//go:build e2e && linux

package e2e_test

import (
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// pictures has the tests of terminals draw what docs/terminals.md shows.
var pictures = flag.Bool("pictures", false, "write the pictures of terminals in docs/images")

// picture draws what the terminal shows as docs/images/NAME.svg, if the flag asks for it.
func (x *terminal) picture(name string) {
	x.home.t.Helper()
	if !*pictures {
		return
	}
	screen := x.must("capture-pane", "-e", "-p", "-t", "="+x.name+":")
	file := filepath.Join("..", "..", "docs", "images", name+".svg")
	// A document.
	if err := os.WriteFile(file, []byte(drawn(screen)), 0o644); err != nil { //nolint:gosec
		x.home.t.Fatal(err)
	}
}

// Sizes of a picture in its own units: of a character, and of the edge.
const (
	charWidth, lineHeight, edge = 8.4, 18.0, 12.0
	pictureColumns              = 120
)

var sgr = regexp.MustCompile(`\x1b\[([0-9;]*)m`)

// drawn makes an SVG picture of lines as a terminal shows them, from the first prompt on. Empty
// lines that follow each other are one.
func drawn(screen string) string {
	var body strings.Builder
	y, wasEmpty, hasBegun, looks := edge, true, false, look{}
	for line := range strings.Lines(screen) {
		line = strings.TrimRight(line, "\n")
		text := strings.TrimSpace(sgr.ReplaceAllString(line, ""))
		hasBegun = hasBegun || strings.HasPrefix(text, "❯ ")
		if !hasBegun || text == "" && wasEmpty {
			continue
		}
		wasEmpty = text == ""
		y += lineHeight
		column := 0
		for line != "" && column < pictureColumns {
			if at := sgr.FindStringSubmatchIndex(line); at != nil && at[0] == 0 {
				looks.apply(line[at[2]:at[3]])
				line = line[at[1]:]
				continue
			}
			end := strings.IndexByte(line, '\x1b')
			if end < 0 {
				end = len(line)
			}
			text := line[:end]
			line = line[end:]
			if runes := []rune(text); len(runes) > pictureColumns-column {
				text = string(runes[:pictureColumns-column])
			}
			if shown := strings.TrimLeft(text, " "); shown != "" {
				x := edge + float64(column+len(text)-len(shown))*charWidth
				fmt.Fprintf(&body, `<text x="%.1f" y="%.1f"%s>%s</text>`+"\n", x, y-5, looks,
					html.EscapeString(shown))
			}
			column += utf8.RuneCountInString(text)
		}
	}
	width, height := 2*edge+pictureColumns*charWidth, y+edge
	return fmt.Sprintf(
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="monospace" `+
			`font-size="14" fill="#d0d7de">`+"\n"+
			`<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>`+"\n%s</svg>\n", width,
		height, body.String())
}

// look is how a terminal shows characters: what SGR sequences have set. The tests' terminals have
// no colours.
type look struct{ isBold, isDim bool }

// apply reads the numbers of an SGR sequence.
func (l *look) apply(sequence string) {
	for code := range strings.SplitSeq(sequence, ";") {
		switch code {
		case "", "0", "22":
			*l = look{}
		case "1":
			l.isBold = true
		case "2":
			l.isDim = true
		}
	}
}

// String returns the attributes of an SVG text.
func (l look) String() string {
	var attributes string
	if l.isBold {
		attributes += ` font-weight="bold"`
	}
	if l.isDim {
		attributes += ` opacity="0.6"`
	}
	return attributes
}
