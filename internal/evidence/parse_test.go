package evidence_test

import (
	"encoding/json"
	"strings"
	"testing"

	"tapgw/internal/evidence"
)

// Each form of a check means the same, and is shown in one.
func TestParse(t *testing.T) {
	for _, test := range []struct{ check, want string }{
		{`{"file": "a/b.txt"}`, `{"file":{"path":"a/b.txt"}}`},
		{
			`{"file": {"path": "a", "nonEmpty": true, "contains": "x", "pattern": "^y"}, "description": "d"}`,
			`{"description":"d","file":{"path":"a","nonEmpty":true,"contains":"x","pattern":"^y"}}`,
		},
		{`{"stream": "ci"}`, `{"stream":{"channel":"ci"}}`},
		{
			`{"stream": {"channel": "ops@ci", "limit": 5, "minEntries": 2}}`,
			`{"stream":{"channel":"ops@ci","limit":5,"minEntries":2}}`,
		},
		{`{"call": "go test ./..."}`, `{"call":{"command":"go test ./..."}}`},
		{
			`{"call": {"tool": "bash", "pattern": "^go test", "exitCode": 0, "success": false}}`,
			`{"call":{"tool":"bash","pattern":"^go test","exitCode":0,"success":false}}`,
		},
		{`{"type": "file", "path": "a", "nonEmpty": true}`,
			`{"file":{"path":"a","nonEmpty":true}}`},
		{`{"channel": "a", "type": "stream"}`, `{"stream":{"channel":"a"}}`},
		{
			`{"type": "command_evidence", "label": "go test", "exitCode": 1}`,
			`{"call":{"contains":"go test","exitCode":1}}`,
		},
	} {
		c, err := evidence.Parse([]byte(test.check))
		if err != nil {
			t.Errorf("%s: got the error %v, want none", test.check, err)
			continue
		}
		if got, _ := json.Marshal(c); string(got) != test.want {
			t.Errorf("%s: got %s, want %s", test.check, got, test.want)
		}
	}
}

// A check that is wrong is refused with the name of the field.
func TestParseRefuses(t *testing.T) {
	for check, want := range map[string]string{
		``:                                           "JSON",
		`[]`:                                         "must be a JSON object",
		`{}`:                                         "a check has one of file, stream and call",
		`{"description": "d"}`:                       "a check has one of",
		`{"file": "a", "call": "b"}`:                 "a check has one of",
		`{"file": 1}`:                                "file: must be a text or an object",
		`{"file": ""}`:                               "file.path: is missing",
		`{"file": {}}`:                               "file.path: is missing",
		`{"file": {"path": 1}}`:                      "file.path: must be a text",
		`{"file": {"path": "a", "mode": 1}}`:         "file.mode: is no field of this check, which takes contains, nonEmpty, path",
		`{"file": {"Path": "a"}}`:                    "file.Path: is no field",
		`{"file": {"path": "a"}, "x": 1}`:            "x: is no field",
		`{"file": {"path":"a","path":"b"}}`:          "path",
		`{"file": {"path":"a","nonEmpty":1}}`:        "file.nonEmpty: must be true or false",
		`{"file": {"path":"a","pattern":"("}}`:       "file.pattern: ",
		`{"stream": {"channel": "!!"}}`:              "stream.channel: ",
		`{"stream": {"channel": "a@"}}`:              "stream.channel: ",
		`{"stream": {"channel": "a", "limit": 1.5}}`: "stream.limit: must be a whole number",
		`{"stream": {"channel": "a", "limit": -1}}`:  "stream.limit: must not be negative",
		`{"stream": {"channel": "a", "limit": "1"}}`: "stream.limit: must be a whole number",
		`{"stream": {"channel":"a","limit":1,"minEntries":2}}`: "stream.minEntries: is more than limit",
		`{"call": {}}`:                                   "call.command: is missing",
		`{"call": {"exitCode": 0}}`:                      "call.command: is missing",
		`{"call": {"command": "a", "exitCode": null}}`:   "call.exitCode: must be a whole number",
		`{"call": {"command": "a", "success": "yes"}}`:   "call.success: must be true or false",
		`{"call": "` + strings.Repeat("a", 1025) + `"}`:  "call.command: has 1025 bytes",
		`{"type": "rumour"}`:                             `type: "rumour" is none of file, stream and command_evidence`,
		`{"type": 1}`:                                    "type: must be a text",
		`{"type": "file", "path": "a", "channel": "b"}`:  "channel: is no field of this check",
		`{"type": "file", "file": "a"}`:                  "file: is no field of this check",
		`{"type": "command_evidence", "contains": "go"}`: "contains: is no field of this check",
	} {
		if _, err := evidence.Parse([]byte(check)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the error %v, want %q in it", check, err, want)
		}
	}
}

// Written checks read the same again, and no text makes the parser panic.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"file": "a"}`, `{"stream": {"channel": "a@b", "limit": 3}}`,
		`{"call": {"pattern": "^x$", "exitCode": 0}}`,
		`{"type": "command_evidence", "label": "go test", "success": true}`,
		`{"file": {"path": {}}}`, `{"file": nul`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := evidence.Parse([]byte(text))
		if err != nil {
			return
		}
		first, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := evidence.Parse(first)
		if err != nil {
			t.Fatalf("%s was read as %s, which is refused: %v", text, first, err)
		}
		if second, _ := json.Marshal(again); string(second) != string(first) {
			t.Errorf("%s: got %s, and of that %s, want the same", text, first, second)
		}
	})
}
