// Package secrets finds the secrets in a text. It is the one rule of the project, for imports,
// records, logs, spans and recordings.
//
// It finds a secret by its own form (the tokens of services that document one, private keys, the
// user's part of a URL), or by the name before it (a flag, a variable, a header, a member, a
// parameter of a URL). References to variables and placeholders are not secrets. A short flag such
// as -p does not count as a name, because only its program knows its meaning. The table in the
// tests has the forms.
package secrets

import (
	"strings"
)

// Kinds of spans. They are the words that stand for a secret, as in <token>.
const (
	Token  = "token"  // of a gateway
	Secret = "secret" // any other
)

// Span is the place of a secret in a text, in bytes.
type Span struct {
	Start, End int
	Kind       string
}

// Redact returns a text with <token> or <secret> for each secret in it. It returns a text without
// secrets unchanged.
func Redact(text string) string {
	return Replace(text, inBrackets)
}

// Replace returns a text in which placeholder has replaced each secret. placeholder gets the
// secret's kind and text. A placeholder in angle brackets does not count as a secret in a later
// pass.
func Replace(text string, placeholder func(kind, secret string) string) string {
	return replace(text, Find(text), placeholder)
}

// ReplaceMember is [Replace] for a text that follows a name, as in a member of an object.
func ReplaceMember(name, text string, placeholder func(kind, secret string) string) string {
	return replace(text, behindName(name, text), placeholder)
}

// RedactMember is [Redact] for a text that follows a name, as in a member of an object.
func RedactMember(name, text string) string {
	return ReplaceMember(name, text, inBrackets)
}

func inBrackets(kind, _ string) string { return "<" + kind + ">" }

func replace(text string, spans []Span, placeholder func(kind, secret string) string) string {
	if len(spans) == 0 {
		return text
	}
	var b strings.Builder
	at := 0
	for _, s := range spans {
		b.WriteString(text[at:s.Start])
		b.WriteString(placeholder(s.Kind, text[s.Start:s.End]))
		at = s.End
	}
	b.WriteString(text[at:])
	return b.String()
}

// Find returns the secrets of a text, in their order. They don't overlap. It takes time in
// proportion to the text.
func Find(text string) (spans []Span) {
	for i := 0; i < len(text); {
		if !isName[text[i]] {
			if text[i] == '-' && strings.HasPrefix(text[i:], pemBegin) {
				if end := pemEnd(text, i); end > 0 {
					spans = append(spans, Span{i, end, Secret})
					i = end
					continue
				}
			}
			i++
			continue
		}
		// A run of name characters: a token, or a name with something behind it.
		end := i + 1
		for end < len(text) && isName[text[end]] {
			end++
		}
		s, ok := inRun(text, i, end)
		if !ok {
			s, ok = behind(text, i, end)
		}
		if !ok {
			i = end
			continue
		}
		spans = append(spans, s)
		i = s.End
	}
	return spans
}

// isName are the characters of names and of most tokens. A minus within a run is one. The table is
// written out, so that no program fills it at its start.
var isName = [256]bool{
	'0': true, '1': true, '2': true, '3': true, '4': true, '5': true,
	'6': true, '7': true, '8': true, '9': true, '_': true,
	'a': true, 'b': true, 'c': true, 'd': true, 'e': true, 'f': true, 'g': true,
	'h': true, 'i': true, 'j': true, 'k': true, 'l': true, 'm': true, 'n': true,
	'o': true, 'p': true, 'q': true, 'r': true, 's': true, 't': true, 'u': true,
	'v': true, 'w': true, 'x': true, 'y': true, 'z': true,
	'A': true, 'B': true, 'C': true, 'D': true, 'E': true, 'F': true, 'G': true,
	'H': true, 'I': true, 'J': true, 'K': true, 'L': true, 'M': true, 'N': true,
	'O': true, 'P': true, 'Q': true, 'R': true, 'S': true, 'T': true, 'U': true,
	'V': true, 'W': true, 'X': true, 'Y': true, 'Z': true,
}

func isAlnum(c byte) bool { return isDigit(c) || isLetter(c) }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

const (
	pemBegin = "-----BEGIN "
	pemLast  = "-----END "
)

// pemEnd returns where a private key ends that begins at i, 0 if the text there is something else.
// A key that is cut off ends with the text.
func pemEnd(text string, i int) int {
	head := text[i+len(pemBegin) : min(len(text), i+80)]
	title, _, ok := strings.Cut(head, "-----")
	if !ok || !strings.Contains(title, "PRIVATE KEY") {
		return 0
	}
	body := i + len(pemBegin) + len(title)
	last := strings.Index(text[body:], pemLast)
	if last < 0 {
		return len(text)
	}
	last += body + len(pemLast)
	if close := strings.Index(text[last:min(len(text), last+80)], "-----"); close >= 0 {
		return last + close + len("-----")
	}
	return len(text)
}

// behindName returns the secrets of a text that follows a name. If the name announces a secret,
// that is the whole text, or the part after the scheme of an Authorization header. Otherwise only
// the text itself counts, as in [Find].
func behindName(name, text string) []Span {
	if level := certaintyOf(name); level != no && text != "" && len(name) <= longestName {
		v := value{end: len(text), quote: whole}
		if s, ok := v.span(text, name, level); ok {
			return []Span{s}
		}
	}
	return Find(text)
}
