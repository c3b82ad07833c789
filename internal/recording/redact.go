// Package recording reads recordings of sessions (docs/recordings.md) and removes secrets from
// them. It stands on internal/protocol and internal/adminapi.
package recording

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tapgw/internal/adminapi"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/protocol"
	"tapgw/internal/secrets"
)

// maxPlaceholders bounds how many texts of one kind have placeholders of their own. Further ones
// share the last.
const maxPlaceholders = 10_000

// maxFieldDepth is how deep in a message the fields of the protocol are that are removed.
const maxFieldDepth = 3

// maxKnown bounds how many secrets of fields are looked for in all texts.
const maxKnown = 500

// minSecret is the length from which a secret is removed wherever it occurs, in bytes.
const minSecret = 12

// secretField finds members with secrets in a text that is no JSON object, such as one that was cut
// off or a dictionary as Python prints it.
var secretField = lazyregexp.New(`(?i)(\b(?:token|reconnectToken|code)["']?\s*[:=]\s*)` +
	`("(?:[^"\\]|\\.)+|'(?:[^'\\]|\\.)+|[^\s"',}\]]+)`)

// answerText finds texts that are no JSON object and were meant as the answer to a question.
var answerText = lazyregexp.New(`(?i)question\.answer`)

// Rule replaces each match of a pattern, in all strings, by a placeholder: KIND-1 and so on in
// angle brackets, the same one for the same text. With IsSingle there is no number.
type Rule struct {
	Pattern  *regexp.Regexp
	Kind     string
	IsSingle bool
}

// Redactor replaces secrets by placeholders, such as <token-1>: the same secret has the same one
// in all lines of a recording. It is for one recording and one goroutine.
type Redactor struct {
	session string
	rules   []Rule
	names   map[string]string // placeholders by kind and text
	counts  map[string]int    // by kind
	known   []string          // secrets that a field had, and their placeholders, in turn
	knows   *strings.Replacer // may be nil
}

// NewRedactor returns a redactor for the recording of a session: it replaces secrets by the rule of
// package secrets, pairing codes, persist directories, and the labels and directories of other
// sessions. NewRuleRedactor returns one that only follows rules.
func NewRedactor(session string) *Redactor {
	return &Redactor{session: session, names: map[string]string{}, counts: map[string]int{}}
}

// NewRuleRedactor returns a redactor that replaces only text that matches the patterns of rules, in
// all strings of a line. It is for texts that only its user knows to be secret.
func NewRuleRedactor(rules ...Rule) *Redactor {
	r := NewRedactor("")
	r.rules = rules
	return r
}

// Start removes the secrets of a recording's first line.
func (r *Redactor) Start(s adminapi.RecordingStart) adminapi.RecordingStart {
	for i := range s.Connections {
		c := &s.Connections[i]
		c.Hello = r.Message(c.Hello)
		for j := range c.Pending {
			c.Pending[j] = r.Message(c.Pending[j])
		}
	}
	return s
}

// Line removes the secrets of a further line.
func (r *Redactor) Line(l adminapi.RecordingLine) adminapi.RecordingLine {
	if l.Message != nil {
		l.Message = r.Message(l.Message)
	}
	if l.Text != "" {
		l.Text = r.noMessage(l.Text)
	}
	if l.Closed != nil {
		l.Closed = &adminapi.RecordedClose{Code: l.Closed.Code, Reason: r.text(l.Closed.Reason)}
	}
	return l
}

// noMessage removes the secrets of a text that is no JSON object.
func (r *Redactor) noMessage(text string) string {
	if r.session != "" && answerText.MatchString(text) {
		return r.secret(answerKind, text) // where the answer begins and ends can't be known
	}
	text = secretField.ReplaceAllStringFunc(text, func(field string) string {
		parts := secretField.FindStringSubmatch(field)
		secret := strings.TrimLeft(parts[2], `"'`)
		return strings.TrimSuffix(field, secret) + r.secret("token", secret)
	})
	return r.text(text)
}

// Message removes the secrets of a message, and the white space around its values. A text that
// is no JSON object becomes a JSON string.
func (r *Redactor) Message(message []byte) []byte {
	var out bytes.Buffer
	dec := jsontext.NewDecoder(bytes.NewReader(message), jsontext.AllowInvalidUTF8(true),
		jsontext.AllowDuplicateNames(true))
	enc := jsontext.NewEncoder(&out, jsontext.AllowInvalidUTF8(true),
		jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true))
	w := walk{r: r, dec: dec, enc: enc, kind: kindOf(message)}
	if r.session != "" &&
		(w.kind == protocol.TypeSessions || w.kind == protocol.TypeSessionsUpdated) {
		w.foreign = map[string]bool{"label": true, "cwd": true}
	}
	if !isObject(message) || w.copy() != nil {
		return protocol.AppendText(nil, r.text(string(message)))
	}
	return bytes.TrimSpace(out.Bytes())
}

// kindOf reads the type of a message. Providers with a fault may write the member in another case.
func kindOf(message []byte) (kind protocol.Type) {
	_ = protocol.Object(message, func(name string, value protocol.Raw) error {
		if text, isText := protocol.Text(value); isText && strings.EqualFold(name, "type") {
			kind = protocol.Type(text)
		}
		return nil
	})
	return kind
}

// hiddenKind is the kind of the placeholder that stands for a member of a message, whatever its
// value is. It is "" for a member that stays.
func hiddenKind(message protocol.Type, member string) string {
	switch member = strings.ToLower(member); {
	case member == "token" || member == "reconnecttoken":
		return "token"
	case member == "code" && message == protocol.TypeAuthConfirm:
		return "code"
	case member == "persistdir":
		return "persistDir"
	case (member == "text" || member == "content") && message == protocol.TypeQuestionAnswer:
		return answerKind
	}
	return ""
}

// answerKind is the kind of the placeholders for the answers to questions, which may be passwords.
const answerKind = "answer"

// walk copies JSON, and replaces strings on the way.
type walk struct {
	r       *Redactor
	dec     *jsontext.Decoder
	enc     *jsontext.Encoder
	kind    protocol.Type
	member  string          // of the message itself: the name that was read last
	foreign map[string]bool // members of sessions that are hidden, unless it is the recorded one
	own     bool            // the object of a list is the recorded session
}

func (w *walk) copy() error {
	for {
		kind := w.dec.PeekKind()
		if hidden := w.hidden(); hidden != "" {
			if err := w.copyHidden(hidden); err != nil {
				return err
			}
			continue
		}
		switch kind {
		case '"':
			if err := w.copyString(); err != nil {
				return err
			}
		case '{', '[', '}', ']':
			if _, err := w.dec.ReadToken(); err != nil {
				return err
			}
			if err := w.enc.WriteToken(delimiter(kind)); err != nil {
				return err
			}
			if kind == '{' {
				w.own = false
			}
		default:
			value, err := w.dec.ReadValue()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = w.enc.WriteValue(value)
			}
			if err != nil {
				return err
			}
		}
	}
}

// hidden is the kind of the placeholder that stands for the next value, or "" if the value may
// stay.
func (w *walk) hidden() string {
	if w.r.session == "" || w.dec.StackDepth() != 1 {
		return ""
	}
	if kind, length := w.dec.StackIndex(1); kind != '{' || length%2 == 0 {
		return "" // a name follows
	}
	return hiddenKind(w.kind, w.member)
}

// copyHidden replaces a value, whatever it is.
func (w *walk) copyHidden(kind string) error {
	value, err := w.dec.ReadValue()
	if err != nil {
		return err
	}
	text, isText := protocol.Text(protocol.Raw(value))
	if !isText {
		text = string(value)
		w.r.learn(kind, value)
	}
	return w.enc.WriteValue(protocol.AppendText(nil, w.r.secret(kind, text)))
}

func delimiter(kind jsontext.Kind) jsontext.Token {
	switch kind {
	case '{':
		return jsontext.BeginObject
	case '}':
		return jsontext.EndObject
	case '[':
		return jsontext.BeginArray
	}
	return jsontext.EndArray
}

func (w *walk) copyString() error {
	raw, err := w.dec.ReadValue()
	if err != nil {
		return err
	}
	text, ok := protocol.Text(protocol.Raw(raw))
	if !ok {
		return w.enc.WriteValue(raw)
	}
	changed := w.replaced(text)
	if changed == text {
		return w.enc.WriteValue(raw)
	}
	return w.enc.WriteValue(protocol.AppendText(nil, changed))
}

// replaced is the replacement of a string that was just read.
func (w *walk) replaced(text string) string {
	depth := w.dec.StackDepth()
	kind, length := w.dec.StackIndex(depth)
	if kind == '{' && length%2 == 1 && depth == 1 {
		w.member = text
	}
	if kind != '{' || length%2 == 1 {
		return w.r.text(text) // an element or a name
	}
	name := w.dec.StackPointer().LastToken()
	if w.foreign != nil && depth <= maxFieldDepth {
		if name == "id" {
			w.own = text == w.r.session
		}
		if w.foreign[name] && !w.own {
			return w.r.placeholder(name, text)
		}
	}
	return w.r.member(name, text)
}

// learn replaces the texts in a value from now on.
func (r *Redactor) learn(kind string, value jsontext.Value) {
	dec := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowInvalidUTF8(true),
		jsontext.AllowDuplicateNames(true))
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return
		}
		if token.Kind() == '"' && len(token.String()) >= minSecret {
			r.secret(kind, token.String())
		}
	}
}

// secret replaces a whole value, and from now on all its occurrences.
func (r *Redactor) secret(kind, text string) string {
	if text == "" || r.session == "" {
		return r.text(text)
	}
	_, isKnown := r.names[kind+" "+text]
	name := r.placeholder(kind, text)
	if !isKnown && len(text) >= minSecret && len(r.known) < 2*maxKnown {
		r.known = append(r.known, text, name)
		r.knows = strings.NewReplacer(r.known...)
	}
	return name
}

// member replaces the secrets in the text of a member.
func (r *Redactor) member(name, text string) string {
	if r.session != "" {
		text = secrets.ReplaceMember(name, text, r.placeholder)
	}
	return r.text(text)
}

// text replaces the secrets in a text.
func (r *Redactor) text(text string) string {
	if r.knows != nil {
		text = r.knows.Replace(text)
	}
	if r.session != "" {
		text = secrets.Replace(text, r.placeholder)
	}
	for _, rule := range r.rules {
		text = rule.Pattern.ReplaceAllStringFunc(text, func(found string) string {
			switch {
			case found == "":
				return ""
			case rule.IsSingle:
				return "<" + rule.Kind + ">"
			}
			return r.placeholder(rule.Kind, found)
		})
	}
	return text
}

// placeholder is the placeholder of a text of a kind.
func (r *Redactor) placeholder(kind, text string) string {
	key := kind + " " + text
	if name, ok := r.names[key]; ok {
		return name
	}
	if r.counts[kind] >= maxPlaceholders {
		return fmt.Sprintf("<%s-%d>", kind, maxPlaceholders)
	}
	r.counts[kind]++
	name := fmt.Sprintf("<%s-%d>", kind, r.counts[kind])
	r.names[key] = name
	return name
}

// homeKind is the kind of the placeholder of a home directory.
const homeKind = "home"

// Home is a rule that replaces a home directory by <home>, also at the beginning of longer paths.
func Home(dir string) Rule {
	pattern := regexp.MustCompile(regexp.QuoteMeta(filepath.Clean(dir)) + `\b`)
	return Rule{Pattern: pattern, Kind: homeKind, IsSingle: true}
}
