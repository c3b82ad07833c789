package markdown

import "strings"

// maxPending is how many bytes a block, or a line of code, may have before it is given out although
// it may go on.
const maxPending = 16 << 10

// Stream renders Markdown that comes in pieces. The zero value with a [Renderer] is ready; the
// renderer's width may change between two calls.
type Stream struct {
	Renderer

	pending strings.Builder // the block that is not complete yet: whole lines
	line    string          // the line that is not complete yet
	blank   bool            // pending ends with an empty line
	inner   string          // the fence of a code block within pending, or ""
	fence   string          // the fence of the code block that is given out line by line, or ""
	begun   bool            // something has been given out
}

// Add takes the next piece, and returns the lines of the blocks that it completes, each with a line
// end.
func (s *Stream) Add(piece string) (done string) {
	var out strings.Builder
	s.line += clean(piece)
	for {
		line, rest, ok := strings.Cut(s.line, "\n")
		if !ok {
			break
		}
		s.line = rest
		s.addLine(&out, line)
	}
	if len(s.line) > maxPending {
		line := s.line
		s.line = ""
		s.addLine(&out, line)
	}
	return out.String()
}

// addLine takes a whole line.
func (s *Stream) addLine(out *strings.Builder, line string) {
	trimmed := strings.TrimSpace(line)
	spaces := len(line) - len(strings.TrimLeft(line, " "))
	if s.fence != "" {
		if closes(s.fence, trimmed) {
			s.fence = ""
		} else {
			out.WriteString(codeLine(line) + "\n")
		}
		return
	}
	if s.inner != "" {
		if closes(s.inner, trimmed) {
			s.inner = ""
		}
		s.keep(out, line)
		return
	}
	fence := fenceOf(trimmed)
	switch {
	case trimmed == "":
		if s.pending.Len() > 0 {
			s.blank = true
			s.keep(out, line)
		}
		return
	case fence != "" && (spaces < 2 || s.pending.Len() == 0 && spaces < 4):
		s.flush(out)
		s.separate(out)
		s.fence = fence
		return
	case fence != "":
		s.inner = fence
	case s.blank && spaces < 2 && !strings.HasPrefix(line, "\t"):
		s.flush(out)
	}
	s.blank = false
	s.keep(out, line)
	if strings.HasPrefix(line, "#") {
		s.flush(out)
	}
}

// keep adds a line to the pending block.
func (s *Stream) keep(out *strings.Builder, line string) {
	s.pending.WriteString(line + "\n")
	if s.pending.Len() > maxPending {
		s.flush(out)
	}
}

// flush gives out the pending text.
func (s *Stream) flush(out *strings.Builder) {
	text := s.Render(s.pending.String())
	s.pending.Reset()
	s.blank, s.inner = false, ""
	if text != "" {
		s.separate(out)
		out.WriteString(text + "\n")
	}
}

// separate puts an empty line between two blocks.
func (s *Stream) separate(out *strings.Builder) {
	if s.begun {
		out.WriteByte('\n')
	}
	s.begun = true
}

// Coming renders the incomplete block, without a line end after the last line.
func (s *Stream) Coming() string {
	if s.fence != "" {
		if s.line == "" {
			return ""
		}
		return codeLine(s.line)
	}
	text := s.Render(s.pending.String() + s.line)
	if text != "" && s.begun {
		text = "\n" + text
	}
	return text
}

// End returns the remaining text, as [Stream.Add] does, and makes the stream ready for another
// text.
func (s *Stream) End() (done string) {
	var out strings.Builder
	if s.line != "" {
		line := s.line
		s.line = ""
		s.addLine(&out, line)
	}
	s.flush(&out)
	*s = Stream{Renderer: s.Renderer}
	return out.String()
}

// fenceOf returns the fence that a line begins with; "" if it does not.
func fenceOf(line string) string {
	for _, mark := range []string{"`", "~"} {
		n := len(line) - len(strings.TrimLeft(line, mark))
		if n >= 3 && (mark == "~" || !strings.Contains(line[n:], "`")) {
			return line[:n]
		}
	}
	return ""
}

// closes reports whether a line ends the code block that a fence began.
func closes(fence, line string) bool {
	return len(line) >= len(fence) && strings.Trim(line, fence[:1]) == ""
}
