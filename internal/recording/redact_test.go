package recording_test

import (
	"regexp"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/recording"
)

const (
	token = "ptk-00112233445566778899aabbccddeeff"
	other = "tok-ffeeddccbbaa99887766554433221100"
)

func TestMessageWithoutSecrets(t *testing.T) {
	tests := []struct{ name, message, want string }{
		{"a token", `{"type":"auth","token":"` + token + `"}`,
			`{"type":"auth","token":"<token-1>"}`},
		{"a token of no known form", `{"type":"auth","token":"secret"}`,
			`{"type":"auth","token":"<token-1>"}`},
		{"two tokens", `{"type":"auth","token":"` + token + `","reconnectToken":"` + other + `"}`,
			`{"type":"auth","token":"<token-1>","reconnectToken":"<token-2>"}`},
		{"a field in another case", `{"type":"auth","Token":"secret"}`,
			`{"type":"auth","Token":"<token-1>"}`},
		{"an escaped token", `{"type":"auth","token":"\u0070tk-0"}`,
			`{"type":"auth","token":"<token-1>"}`},
		{"a pairing code", `{"type":"auth.confirm","code":"123456"}`,
			`{"type":"auth.confirm","code":"<code-1>"}`},
		{"a pairing code that is a number", `{"type":"auth.confirm","code": 123456}`,
			`{"type":"auth.confirm","code":"<code-1>"}`},
		{"a token in a list", `{"type":"auth","token":["secret",{"a":1}],"x":1}`,
			`{"type":"auth","token":"<token-1>","x":1}`},
		{"an answer's text",
			`{"type":"question.answer","question":"q-1","text":"hunter2","person":"Ada"}`,
			`{"type":"question.answer","question":"q-1","text":"<answer-1>","person":"Ada"}`},
		{"an answer's content",
			`{"type":"question.answer","question":"q-1","content":{"pin":1234,"ok":true,"a":["x"]}}`,
			`{"type":"question.answer","question":"q-1","content":"<answer-1>"}`},
		{"an answer with a wrong field", `{"Type":"question.answer","Text":1234,"content":null}`,
			`{"Type":"question.answer","Text":"<answer-1>","content":"<answer-2>"}`},
		{"an event's text", `{"type":"push","text":"a","content":{"b":1}}`,
			`{"type":"push","text":"a","content":{"b":1}}`},
		{"an error's code", `{"type":"error","code":"DENIED"}`, `{"type":"error","code":"DENIED"}`},
		{"a persist directory", `{"type":"hello.ack","persistDir":"/home/ada/x"}`,
			`{"type":"hello.ack","persistDir":"<persistDir-1>"}`},
		{"a token deep in data", `{"type":"push","metadata":{"a":["is ` + token + `!"]}}`,
			`{"type":"push","metadata":{"a":["is <token-1>!"]}}`},
		{"a token as a name", `{"type":"push","metadata":{"` + token + `":1}}`,
			`{"type":"push","metadata":{"<token-1>":1}}`},
		{"a tool's own argument", `{"type":"tool.call","args":{"token":"page-2"}}`,
			`{"type":"tool.call","args":{"token":"<secret-1>"}}`},
		{"a word that is no secret",
			`{"type":"tool.call","args":{"nextPageToken":"page-2","maxTokens":100}}`,
			`{"type":"tool.call","args":{"nextPageToken":"page-2","maxTokens":100}}`},
		{"secrets of others",
			`{"type":"tool.call","args":{"command":"psql postgresql://u:pw1@db","env":{"password":"x y"}}}`,
			`{"type":"tool.call","args":{"command":"psql postgresql://u:<secret-1>@db","env":{"password":"<secret-2>"}}}`},
		{"numbers and strings as they are",
			`{"type":"push","metadata": {"n":1.50e3, "s":"\u00e9\ud800"}}`,
			`{"type":"push","metadata":{"n":1.50e3,"s":"\u00e9\ud800"}}`},
		{"other sessions", `{"type":"sessions","active":[{"id":"s1","label":"own","cwd":"/own"},` +
			`{"id":"s2","label":"other","cwd":"/other"}]}`,
			`{"type":"sessions","active":[{"id":"s1","label":"own","cwd":"/own"},` +
				`{"id":"s2","label":"<label-1>","cwd":"<cwd-1>"}]}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := string(
				recording.NewRedactor("s1").Message([]byte(test.message))); got != test.want {
				t.Errorf("message:\ngot  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestSameSecretSamePlaceholder shows that a secret which one message had in a field is removed
// from the others, wherever it is.
func TestSameSecretSamePlaceholder(t *testing.T) {
	r := recording.NewRedactor("s1")
	r.Message([]byte(`{"type":"hello.ack","reconnectToken":"a-token-of-a-kind"}`))
	got := r.Line(
		adminapi.RecordingLine{Message: []byte(
			`{"type":"push","event":"I have a-token-of-a-kind"}`)})
	if want := `{"type":"push","event":"I have <token-1>"}`; string(got.Message) != want {
		t.Errorf("message: got %s, want %s", got.Message, want)
	}
}

// TestAnswerIsRemovedElsewhere shows that the model's own tool does not tell a person's answer.
func TestAnswerIsRemovedElsewhere(t *testing.T) {
	r := recording.NewRedactor("s1")
	r.Message([]byte(`{"type":"question.answer","content":{"key":["correct horse"],"n":1}}`))
	got := r.Line(adminapi.RecordingLine{
		Message: []byte(`{"type":"session.event","data":{"output":"the user said: correct horse"}}`)})
	want := `{"type":"session.event","data":{"output":"the user said: <answer-1>"}}`
	if string(got.Message) != want {
		t.Errorf("message: got %s, want %s", got.Message, want)
	}
}

func TestTextWithoutSecrets(t *testing.T) {
	r := recording.NewRedactor("s1")
	got := r.Line(adminapi.RecordingLine{Text: `{"type":"auth","token": "hush", "x":"` + token +
		`"`})
	if want := `{"type":"auth","token": "<token-1>", "x":"<token-2>"`; got.Text != want {
		t.Errorf("text: got %s, want %s", got.Text, want)
	}
	for text, want := range map[string]string{
		`{'type': 'auth', 'token': 'it\'s', 'n': 1}`:                  `{'type': 'auth', 'token': '<token-1>', 'n': 1}`,
		`{type: auth.confirm, code: 123456}`:                          `{type: auth.confirm, code: <token-1>}`,
		`{"type":"auth","token":"cut o`:                               `{"type":"auth","token":"<token-1>`,
		`{'type': 'question.answer', 'text': 'hunter2', 'pin': 1234}`: `<answer-1>`,
		`{"type":"question.answer","content":{"pin":12`:               `<answer-1>`,
	} {
		if got := recording.NewRedactor("s1").Line(
			adminapi.RecordingLine{Text: text}); got.Text != want {
			t.Errorf("text %s: got %s, want %s", text, got.Text, want)
		}
	}
	closed := r.Line(adminapi.RecordingLine{Closed: &adminapi.RecordedClose{Code: 1008,
		Reason: token}})
	if closed.Closed.Reason != "<token-2>" {
		t.Errorf("reason: got %q, want <token-2>", closed.Closed.Reason)
	}
}

func TestRules(t *testing.T) {
	r := recording.NewRuleRedactor(
		recording.Rule{Pattern: regexp.MustCompile(`/home/ada\b`), Kind: "home", IsSingle: true},
		recording.Rule{Pattern: regexp.MustCompile(`ACME-\d+`), Kind: "redacted"})
	const message = `{"message":{"args":{"path":"/home/ada/x","id":"ACME-7 and ACME-8, ACME-7","token":"t"}}}`
	const want = `{"message":{"args":{"path":"<home>/x","id":"<redacted-1> and <redacted-2>, <redacted-1>","token":"t"}}}`
	if got := string(r.Message([]byte(message))); got != want {
		t.Errorf("line:\ngot  %s\nwant %s", got, want)
	}
}

// FuzzMessage shows that no token of a gateway's form stays, and that the result is JSON.
func FuzzMessage(f *testing.F) {
	f.Add(`{"type":"auth","token":"` + token + `"}`)
	f.Add(`{"type":"push","metadata":[{"` + token + `":["` + token + `"]}]}`)
	f.Add(`{"type":"push","event":"` + token)
	isolated := regexp.MustCompile(`\b` + token + `\b`)
	f.Fuzz(func(t *testing.T, message string) {
		got := string(recording.NewRedactor("s1").Message([]byte(message)))
		if isolated.MatchString(got) {
			t.Errorf("message %q: got %s, want it without the token", message, got)
		}
		if !isJSON(got) {
			t.Errorf("message %q: got %s, want JSON", message, got)
		}
	})
}
