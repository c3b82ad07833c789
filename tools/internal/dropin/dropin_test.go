package dropin

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write writes files of a directory and returns it. Names that end in + are
// executable.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		mode := os.FileMode(0o644)
		if base, ok := strings.CutSuffix(name, "+"); ok {
			name, mode = base, 0o755
		}
		path := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), mode))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAnswerOf(t *testing.T) {
	const shape = "a tool returns a list"
	tests := []struct {
		name, in string
		parts    []string
		data     bool
		err      string
	}{
		{name: "nothing", in: ``},
		{name: "None", in: `null`},
		{name: "text", in: `"hello"`, parts: []string{"hello"}},
		{name: "list", in: `[{"type":"text","value":"a"},{"type":"text","value":"b"}]`,
			parts: []string{"a", "b"}},
		{name: "empty list", in: `[]`},
		{name: "without type", in: `[{"value":"a"}]`, parts: []string{"a"}},
		{name: "as in MCP", in: `[{"type":"text","text":"a"}]`, parts: []string{"a"}},
		{name: "texts", in: `["a","b"]`, parts: []string{"a", "b"}},
		{name: "values that are no text",
			in:    `[{"type":"text","value":4},{"value":{"a":1}},{"value":null}]`,
			parts: []string{"4", `{"a":1}`, "null"}},
		{name: "lone surrogate", in: `"\udc80"`, parts: []string{"\uFFFD"}},
		{name: "success", in: `{"result":"success","path":"x"}`, data: true},
		{name: "error", in: `{"result":"error","message":"no such file"}`, err: "no such file"},
		{name: "error without message", in: `{"result":"error","code":7}`,
			err: `without a message: {"result":"error","code":7}`},
		{name: "another result", in: `{"result":"fine"}`, err: `result "fine": ` + shape},
		{name: "result no text", in: `{"result":1}`, err: shape},
		{name: "no result", in: `{"a":1}`, err: `dict {"a":1}: ` + shape},
		{name: "number", in: `5`, err: "returned 5: " + shape},
		{name: "true", in: `true`, err: shape},
		{name: "picture", in: `[{"type":"text","value":"a"},{"type":"image","value":"b"}]`,
			err: "item 2 of the list"},
		{name: "no value", in: `[{"type":"text"}]`, err: "item 1"},
		{name: "list in list", in: `[["a"]]`, err: "item 1"},
		{name: "long", in: `[` + strings.Repeat("1", 1000) + `]`, err: "11...: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := answerOf(json.RawMessage(tt.in))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || !slices.Equal(a.Parts, tt.parts) || (a.Data != nil) != tt.data {
				t.Errorf("got %q, data %s, %v, want %q, with data: %v", a.Parts, a.Data, err,
					tt.parts, tt.data)
			}
		})
	}
}

func TestManifest(t *testing.T) {
	const schema = `{"properties":{"a":{"description":"d","type":"string"}},"required":[],"type":"object"}`
	tests := []struct {
		name, file, text string
		want             Manifest
		line             int
		fault            string
	}{
		{name: "all in TOML", file: "x.tool.toml", text: `name = "y"
description = "does"
kind = "terminal"
timeout = "90s"
command = ["sh", "-c", "true"]
[parameters]
type = "object"
required = []
[parameters.properties.a]
type = "string"
description = "d"
`, want: Manifest{Spec: Spec{"y", "does", json.RawMessage(schema), "terminal", 6}, Argv: []string{"sh", "-c", "true"},
			Timeout: 90 * time.Second}},
		{name: "all in JSON", file: "x.tool.json",
			text: `{"name": "y", "description": "does", "kind": "edit", "timeout": "2m",
 "command": ["sh"],
 "inputSchema": ` + schema + `}`,
			want: Manifest{Spec: Spec{"y", "does", json.RawMessage(schema), "edit", 3},
				Argv:    []string{"sh"},
				Timeout: 2 * time.Minute}},
		{name: "as little as can be", file: "x.tool.toml", text: `command = ["sh"]`,
			want: Manifest{Spec: Spec{Name: "x", Parameters: noParameters}, Argv: []string{"sh"}}},
		{name: "unknown key", file: "x.tool.toml", text: "name = \"y\"\n\ndescripton = \"d\"",
			line:  3,
			fault: `unknown key "descripton": a manifest has name, description`},
		{name: "unknown table", file: "x.tool.toml", text: "[params]\na=1", line: 1,
			fault: `unknown key "params"`},
		{name: "another case", file: "x.tool.toml", text: "Name = \"y\"", line: 1,
			fault: `unknown key "Name"`},
		{name: "unknown key in JSON", file: "x.tool.json", text: "{\n\"name\": \"y\",\n\"nam\": 1}",
			line:  3,
			fault: `unknown key "nam"`},
		{name: "TOML syntax", file: "x.tool.toml", text: "name = \"y\"\nkind = \n", line: 2,
			fault: "expected value"},
		{name: "JSON syntax", file: "x.tool.json", text: "{\n\"name\": \n}", line: 3,
			fault: "no JSON"},
		{name: "key twice", file: "x.tool.json", text: "{\"name\":\"a\",\n\"name\":\"b\"}", line: 2,
			fault: "duplicate"},
		{name: "wrong type", file: "x.tool.toml", text: "\nname = 5", line: 2,
			fault: "name: a number does not fit"},
		{name: "no object", file: "x.tool.json", text: "[]", line: 1,
			fault: "a manifest is an object"},
		{name: "not a number", file: "x.tool.toml", text: "[parameters]\na = nan",
			fault: "a value that JSON doesn't have"},
		{name: "wrong type in JSON", file: "x.tool.json", text: "{\n\"command\": \"run\"}", line: 2,
			fault: "command: a string does not fit"},
		{name: "timeout a number", file: "x.tool.toml", text: `timeout = 5`, line: 1,
			fault: "timeout"},
		{name: "timeout without unit", file: "x.tool.toml", text: "\ntimeout = \"5\"", line: 2,
			fault: `write one such as "30s"`},
		{name: "timeout in JSON", file: "x.tool.json", text: `{"timeout": "-5s"}`, line: 1,
			fault: `timeout: "-5s" is no timeout`},
		{name: "schema twice", file: "x.tool.toml", text: "[parameters]\n[inputSchema]", line: 2,
			fault: "the same thing"},
		{name: "empty argument", file: "x.tool.toml", text: `command = [""]`, line: 1,
			fault: "command is a list"},
		{name: "nowhere", file: "x.tool.toml", text: "\ncommand = [\"no-such-program-here\"]",
			line:  2,
			fault: "no-such-program-here cannot be run"},
		{name: "no program", file: "x.tool.toml", text: ``,
			fault: "no executable file x or x.* lies beside it"},
		{name: "no TOML", file: "x.tool.toml", text: "\xff\x00", line: 1, fault: "UTF-8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, bad := ReadManifest(filepath.Join(write(t, map[string]string{tt.file: tt.text}),
				tt.file))
			if tt.fault != "" {
				if bad == nil || bad.Line != tt.line || !strings.Contains(bad.Reason, tt.fault) {
					t.Errorf("fault %+v, want line %d, %q", bad, tt.line, tt.fault)
				}
				return
			}
			if bad != nil {
				t.Fatalf("fault %v, want none", bad)
			}
			if m.Name != tt.want.Name || m.Description != tt.want.Description ||
				m.Kind != tt.want.Kind || m.Line != tt.want.Line ||
				m.Timeout != tt.want.Timeout || !slices.Equal(m.Argv, tt.want.Argv) ||
				string(m.Parameters) != string(tt.want.Parameters) {
				t.Errorf("got %+v with %s, want %+v", m, m.Parameters, tt.want)
			}
		})
	}
}

func TestManifestFindsItsProgram(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		text  string
		want  []string // a name with / in front is one of the directory
		fault string
	}{
		{"of its name", map[string]string{"x+": "", "x.sh+": ""}, "", []string{"/x"}, ""},
		{"with an ending", map[string]string{"x.sh+": "", "x.txt": "", "x.tool.md": ""}, "",
			[]string{"/x.sh"}, ""},
		{"several", map[string]string{"x.sh+": "", "x.py+": ""}, "", nil,
			"x.py, x.sh could all be"},
		{"none executable", map[string]string{"x.sh": "", "xx+": ""}, "", nil, "chmod +x"},
		{"named", map[string]string{"y+": "", "a.json": ""},
			`command = ["./y", "a.json", "./a.json", "b.json", "-v", "../x"]`,
			[]string{"/y", "/a.json", "/a.json",
				"b.json", "-v", "../x"}, ""},
		{"script of an interpreter", map[string]string{"y.sh": ""}, `command = ["sh", "y.sh"]`,
			[]string{"sh", "/y.sh"},
			""},
		{"no executable itself", map[string]string{"sh": ""}, `command = ["sh"]`, []string{"sh"},
			""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.files["x.tool.toml"] = tt.text
			dir := write(t, tt.files)
			m, bad := ReadManifest(filepath.Join(dir, "x.tool.toml"))
			if tt.fault != "" {
				if bad == nil || !strings.Contains(bad.Reason, tt.fault) {
					t.Errorf("fault %v, want %q", bad, tt.fault)
				}
				return
			}
			if bad != nil {
				t.Fatalf("fault %v, want none", bad)
			}
			for i, arg := range tt.want {
				if strings.HasPrefix(arg, "/") {
					tt.want[i] = dir + arg
				}
			}
			if got := m.argv(); !slices.Equal(got, tt.want) {
				t.Errorf("runs %q, want %q", got, tt.want)
			}
		})
	}
}

func TestExecutable(t *testing.T) {
	root := t.TempDir()
	tests := []struct {
		name, script string
		parts        []string
		data, err    string
	}{
		{name: "arguments and place", script: `cat; echo; pwd; echo "$WORKSPACE_ROOT $A"`,
			parts: []string{"{\"a\":1}\n" + root + "\n" + root + " b\n"}},
		{name: "list", script: `echo '[{"type":"text","value":"x"},{"type":"text","value":"y"}]'`,
			parts: []string{"x", "y"}},
		{name: "dict", script: `echo '{"result": "success"}'`, data: `{"result": "success"}`},
		{name: "error dict", script: `echo '{"result": "error", "message": "no disk"}'`,
			err: "no disk"},
		{name: "JSON of its own", script: `echo '{"a": [1, 2]}'`,
			parts: []string{"{\"a\": [1, 2]}\n"}},
		{name: "nothing", script: `true`},
		{name: "colours", script: `printf '\033[31mred\033[0m'`, parts: []string{"red"}},
		{name: "failure", script: `echo ignored; echo 'no such thing' >&2; exit 3`,
			err: "sh: exit code 3: no such thing"},
		{name: "failure told on stdout", script: `echo 'no such thing'; exit 1`,
			err: "sh: exit code 1: no such thing"},
		{name: "failure without a word", script: `exit 1`, err: "exit code 1: it wrote nothing"},
		{name: "signal", script: `kill -9 $$`, err: "ended by signal: killed"},
		{name: "a success dict and a failure", script: `echo '{"result": "success"}'; exit 1`,
			err: "exit code 1"},
		{name: "1 MB", script: `head -c 1048576 /dev/zero | tr '\0' x`,
			parts: []string{strings.Repeat("x", 1<<20)}},
		{name: "too much", script: `head -c 5000000 /dev/zero | tr '\0' x`, err: "more than 4 MB"},
		{name: "something left behind", script: `sleep 1000 & echo done`,
			parts: []string{"done\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := Executable{Manifest: &Manifest{Argv: []string{"sh", "-c", tt.script}},
				Env: []string{"A=b", "PATH=" + os.Getenv("PATH")}}
			a, err := e.Call(t.Context(), Call{Root: root, Input: json.RawMessage(`{"a":1}`)})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || !slices.Equal(a.Parts, tt.parts) || string(a.Data) != tt.data {
				t.Errorf(
					"got %.200q, data %s, %v, want %.200q, %s and no error",
					a.Parts, a.Data, err, tt.parts, tt.data,
				)
			}
		})
	}
}

func TestSplitter(t *testing.T) {
	text := "hello\n{\"call\":1,\"sync\":[\"a\",\"b\"]}\n\n{\"call\":1,\"result\":[]}\n"
	for size := 1; size <= len(text); size++ {
		var got []frame
		s := splitter{onFrame: func(f frame) {
			got = append(got, f)
		}, onFault: func(err error) { t.Error(err) }}
		for chunk := range slices.Chunk([]byte(text), size) {
			_, _ = s.Write(chunk)
		}
		if len(got) != 2 || !slices.Equal(got[0].Sync, []string{"a", "b"}) ||
			string(got[1].Result) != "[]" {
			t.Fatalf("in pieces of %d: %+v, want sync and result", size, got)
		}
	}
	for _, bad := range []string{"{\n", "{\"sync\":[1]}\n", "{\"sync\":[\"a\"]}\n",
		"{\"open\":[]}\n",
		strings.Repeat("x", maxFrame+1)} {
		var err error
		s := splitter{
			onFrame: func(frame) { t.Error("a frame that is none is taken, want a fault") },
			onFault: func(e error) { err = errors.Join(err, e) },
		}
		_, _ = s.Write([]byte(bad))
		_, _ = s.Write([]byte("{\"result\":[]}\n"))
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.20q: failed with %v, want once", bad, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte("name = \"x\"\n[parameters]\ntype = \"object\""), true)
	f.Add([]byte("[[parameters]]\n"), true)
	f.Add([]byte("parameters = {a = 1979-05-27, b = nan}"), true)
	f.Add([]byte("[a.\"b\\u0000\".c]\nx=[{},[]]"), true)
	f.Add([]byte(`{"name":"x","command":["a"],"inputSchema":{"type":"object"}}`), false)
	f.Add([]byte(`{"timeout":"1h","kind":[]}`), false)
	f.Add([]byte(`{"command":[null,""]}`), false)
	f.Fuzz(func(t *testing.T, data []byte, isTOML bool) {
		m, bad := parseManifest(data, isTOML)
		if (m == nil) == (bad == nil) {
			t.Fatalf("manifest %v, fault %v, want one of both", m, bad)
		}
		if bad != nil &&
			(bad.Reason == "" || bad.Line < 0 || bad.Line > 1+strings.Count(string(data), "\n")) {
			t.Errorf("fault %+v, want a reason, and a line of the file", bad)
		}
		if m != nil && (!json.Valid(m.Parameters) || m.Timeout < 0 || slices.Contains(m.Argv, "")) {
			t.Errorf(
				"manifest %+v, want JSON parameters, a timeout of 0 or more, and no empty argument",
				m)
		}
	})
}

func FuzzRunner(f *testing.F) {
	f.Add([]byte("{\"call\":1,\"result\":[{\"type\":\"text\",\"value\":\"x\"}]}\n"), 3)
	f.Add(
		[]byte(
			"noise\n{\"call\":1,\"sync\":[\"a\",\"b\"]}\n{\"call\":1,\"fault\":\"f\",\"line\":3}\n"), 100)
	f.Add([]byte("{\"schema\":{\"name\":5}}\n{\"skip\":true}\n"), 1)
	f.Add(
		[]byte(
			"{\"result\":{\"result\":\"error\",\"message\":[]}}\n{\"open\":[\"\",\"\",\"\"]}\n{"),
		7)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		read := func(size int) (frames, fails int) {
			s := splitter{
				onFrame: func(f frame) {
					frames++
					if f.Result != nil {
						a, err := answerOf(f.Result)
						if err == nil && a.Data != nil && !json.Valid(a.Data) {
							t.Errorf("data %q, want JSON", a.Data)
						}
					}
					if f.Schema != nil {
						if spec, bad := specOf("no-such-file",
							f.Schema); (spec == nil) == (bad == nil) {
							t.Errorf("spec %v, fault %v, want one of both", spec, bad)
						}
					}
				},
				onFault: func(error) { fails++ },
			}
			for chunk := range slices.Chunk(data, size) {
				_, _ = s.Write(chunk)
			}
			return frames, fails
		}
		frames, fails := read(1 + max(len(data)-1, 0))
		if f, e := read(1 + size&0xff); f != frames || e != fails || e > 1 {
			t.Errorf(
				"in one: %d frames, %d faults; in pieces: %d, %d, want the same, with at most one fault",
				frames, fails, f, e,
			)
		}
	})
}
