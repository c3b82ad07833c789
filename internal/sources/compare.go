package sources

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"tapgw/configs"
)

const (
	// maxSeenLines is how many different lines are kept and compared, the last ones of an answer.
	maxSeenLines = 50_000
	tailLines    = 20 // of {tail}
)

// answer is the output of a run, for sources that compare.
type answer struct {
	text           string
	isSame         bool   // the server says that nothing has changed
	etag, modified string // of a URL
}

// output has the last lines that a command has printed.
type output struct {
	lines []string
	bytes int
}

func (o *output) add(line string) {
	o.lines = append(o.lines, line)
	o.bytes += len(line)
	for o.bytes > maxOutput && len(o.lines) > 1 {
		o.bytes -= len(o.lines[0])
		o.lines = o.lines[1:]
	}
}

// tail is the last lines.
func (a *answer) tail() string {
	at := len(a.text)
	for range tailLines {
		if at = strings.LastIndexByte(a.text[:at], '\n'); at < 0 {
			return a.text
		}
	}
	return a.text[at+1:]
}

// isPointer reports whether the source compares a part of JSON.
func (s *source) isPointer() bool { return strings.HasPrefix(s.config.Compare, "/") }

// before is the answer of the last run. It is zero if that run had another question, because the
// file was another one.
func (s *source) before() seen {
	if s.progress.Seen.Of != s.asks() {
		return seen{}
	}
	return s.progress.Seen
}

// asks is a digest of the source's question and of its way to compare.
func (s *source) asks() string {
	return digest(strings.Join(append([]string{s.config.Compare, s.config.URL}, s.config.Run...),
		"\x00"))
}

// emitDifference emits an event if this run's answer differs from the last run's, for a source that
// compares. The first run has nothing to compare with. failure is how the run ended.
func (s *source) emitDifference(a *answer, failure error) error {
	before := s.before()
	isFirst := before.Of == ""
	switch {
	case s.config.Compare == "" || a.isSame:
		return nil
	case s.config.Compare == configs.CompareExit:
		s.emitExitDifference(a, failure)
		return nil
	case failure != nil && s.config.URL != "":
		return nil
	}
	now := seen{Of: s.asks(), ETag: a.etag, Modified: a.modified}
	switch s.config.Compare {
	case configs.CompareOutput:
		if now.Digest = digest(a.text); !isFirst && before.Digest != now.Digest {
			s.emit(a.event(a.text, nil))
		}
	case configs.CompareLines:
		now.Lines = s.changedLines(a, before.Lines, isFirst)
	default:
		value, text, err := a.find(s.config.Compare)
		if err != nil {
			return err
		}
		if now.Digest = digest(value); !isFirst && before.Digest != now.Digest {
			s.emit(a.event(text, map[string]string{"value": text}))
		}
	}
	s.progress.Seen = now
	return nil
}

func (s *source) emitExitDifference(a *answer, failure error) {
	said := "the command works again"
	if failure != nil {
		said = failure.Error()
	}
	if (failure != nil) != (s.progress.Failures > 0) {
		s.emit(a.event(strings.TrimSpace(said+"\n"+a.tail()), nil))
	}
}

// changedLines makes events of the lines that were not there before, and returns the digests of
// all.
func (s *source) changedLines(a *answer, before []string, isFirst bool) []string {
	had := make(map[string]bool, len(before))
	for _, d := range before {
		had[d] = true
	}
	var all []string
	has := map[string]bool{}
	lines := strings.Split(a.text, "\n")
	for _, line := range lines[max(0, len(lines)-maxSeenLines):] {
		line = strings.TrimSuffix(line, "\r")
		d := digest(line)
		if has[d] || strings.TrimSpace(line) == "" {
			continue
		}
		has[d] = true
		all = append(all, d)
		if !isFirst && !had[d] {
			e := a.event(line, map[string]string{"line": line})
			e.isLine = true
			s.emit(e)
		}
	}
	return all
}

// event is an event of the answer, with the names that the file's text may use besides values.
func (a *answer) event(text string, values map[string]string) origin {
	e := origin{text: text, values: map[string]string{"output": a.text, "body": a.text,
		"tail": a.tail()}}
	maps.Copy(e.values, values)
	e.body, _ = decode(a.text)
	return e
}

// find returns the value that a JSON pointer names, as JSON and as a text.
func (a *answer) find(pointer string) (value, text string, err error) {
	body, err := decode(a.text)
	if err != nil {
		return "", "", fmt.Errorf("compare = %q needs JSON: %w", pointer, err)
	}
	v, ok := configs.ResolvePointer(body, pointer)
	if !ok {
		return "", "there is nothing at " + pointer, nil
	}
	data, err := json.Marshal(v)
	return string(data), textOf(v), err
}

// decode reads one value of JSON.
func decode(text string) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, errors.New("the answer is not JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON")
	}
	return v, nil
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}
