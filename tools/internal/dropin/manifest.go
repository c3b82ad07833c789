package dropin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	jsonexp "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Manifest endings: NAME.tool.toml and NAME.tool.json make a tool of an executable.
const (
	TOMLManifest = ".tool.toml"
	JSONManifest = ".tool.json"
)

// Manifest describes how an executable is a tool. The smallest one holds a description
// and lies beside an executable of its name. A full one, in TOML:
//
//	name = "greet"                      # default: the file's name before .tool.toml
//	description = "Greets someone."     # the model decides by it
//	kind = "read"                       # or edit, terminal, web; without it, calls need consent
//	timeout = "30s"                     # default: that of all tools
//	command = ["node", "greet.mjs"]     # default: the executable greet, or the one greet.*
//	[parameters]                        # or inputSchema; a JSON Schema
//	type = "object"
//	required = ["who"]                  # always needed, [] if nothing is required
//	properties.who = { type = "string", description = "whom to greet" }
//
// The command runs in the workspace, whose path WORKSPACE_ROOT holds. Arguments that
// name a file beside the manifest become the path of that file.
type Manifest struct {
	Spec
	Argv    []string      // program and arguments
	Timeout time.Duration // 0: the default of tools

	dir string
}

// argv is Argv for another working directory: an argument that names a file beside
// the manifest becomes the path of that file.
func (m *Manifest) argv() []string {
	argv := slices.Clone(m.Argv)
	for i, arg := range argv {
		if !filepath.IsLocal(arg) {
			continue
		}
		path := filepath.Join(m.dir, arg)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && (i > 0 || info.Mode()&0o111 != 0) {
			argv[i] = path
		}
	}
	return argv
}

// manifest is the content of a manifest file.
type manifest struct {
	Name        string `json:"name"`        // default: NAME
	Description string `json:"description"` // the model decides by it
	// read, edit, terminal or web; "": calls need consent
	Kind        string         `json:"kind"`
	Timeout     duration       `json:"timeout"`     // "30s"; default: the timeout of all tools
	Command     []string       `json:"command"`     // default: the executable NAME or NAME.*
	Parameters  jsontext.Value `json:"parameters"`  // a JSON Schema; left out: no parameters
	InputSchema jsontext.Value `json:"inputSchema"` // the same by the document's name
}

// duration is a positive time such as "30s".
type duration time.Duration

// UnmarshalText is encoding.TextUnmarshaler's.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v <= 0 {
		return fmt.Errorf(`%q is no timeout: write one such as "30s" or "2m"`, text)
	}
	*d = duration(v)
	return nil
}

// ManifestName returns the name of a manifest file without its ending; ok is false for
// other files.
func ManifestName(path string) (name string, ok bool) {
	for _, ending := range []string{TOMLManifest, JSONManifest} {
		if name, ok := strings.CutSuffix(filepath.Base(path), ending); ok && name != "" {
			return name, true
		}
	}
	return "", false
}

// ReadManifest reads a manifest, in TOML or JSON by its ending, and finds its
// executable. The tool's name and program default to the file's name. The fault has
// the line where it is known.
func ReadManifest(path string) (*Manifest, *Fault) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fault(0, "reading it: %v", err)
	}
	name, _ := ManifestName(path)
	m, bad := parseManifest(data, strings.HasSuffix(path, TOMLManifest))
	if bad != nil {
		return nil, bad
	}
	if m.Name == "" {
		m.Name = name
	}
	dir := filepath.Dir(path)
	if len(m.Argv) == 0 {
		program, bad := executable(dir, name)
		if bad != nil {
			return nil, bad
		}
		m.Argv = []string{program}
	}
	m.dir = dir
	if program := m.argv()[0]; !filepath.IsAbs(program) {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fault(keyLine(data, "command"),
				"%s cannot be run: it is neither on PATH nor an executable file beside the "+
					"manifest", program)
		}
	}
	return m, nil
}

// parseManifest reads the text of a manifest, in TOML or JSON.
func parseManifest(data []byte, isTOML bool) (*Manifest, *Fault) {
	asJSON, place := data, func(offset int64, _ string) int { return lineAt(data, int(offset)) }
	if isTOML {
		var bad *Fault
		if asJSON, bad = fromTOML(data); bad != nil {
			return nil, bad
		}
		place = func(_ int64, key string) int { return keyLine(data, key) }
	}
	var in manifest
	if err := jsonexp.Unmarshal(asJSON, &in, jsonexp.RejectUnknownMembers(true)); err != nil {
		return nil, manifestFault(err, place)
	}
	m := &Manifest{
		Spec: Spec{Name: in.Name, Description: in.Description, Kind: in.Kind,
			Parameters: noParameters},
		Argv: in.Command, Timeout: time.Duration(in.Timeout),
	}
	switch {
	case in.Parameters != nil && in.InputSchema != nil:
		return nil, fault(keyLine(data, "inputSchema"),
			"parameters and inputSchema are the same thing: give one of them")
	case in.Parameters != nil:
		m.Parameters, m.Line = json.RawMessage(in.Parameters), keyLine(data, "parameters")
	case in.InputSchema != nil:
		m.Parameters, m.Line = json.RawMessage(in.InputSchema), keyLine(data, "inputSchema")
	}
	if slices.Contains(m.Argv, "") {
		return nil, fault(keyLine(data, "command"),
			`command is a list of texts such as ["node", "tool.mjs"], none of them empty`)
	}
	return m, nil
}

// fromTOML converts TOML to JSON.
func fromTOML(data []byte) ([]byte, *Fault) {
	var doc map[string]any
	if _, err := toml.NewDecoder(bytes.NewReader(data)).Decode(&doc); err != nil {
		if where, ok := errors.AsType[toml.ParseError](err); ok {
			return nil, fault(where.Position.Line, "%s", where.Message)
		}
		return nil, fault(0, "%v", err)
	}
	asJSON, err := json.Marshal(doc)
	if err != nil {
		return nil, fault(0, "it holds a value that JSON doesn't have: %v", err)
	}
	return asJSON, nil
}

// manifestFault makes a fault of a decoding error; place finds the line of an offset in
// the JSON, or of a key.
func manifestFault(err error, place func(offset int64, key string) int) *Fault {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fault(place(syntax.ByteOffset, ""), "no JSON: %v", syntax.Err)
	}
	where, ok := errors.AsType[*jsonexp.SemanticError](err)
	if !ok {
		return fault(0, "%v", err)
	}
	var key string
	for key = range where.JSONPointer.Tokens() {
		break
	}
	line := place(where.ByteOffset, key)
	switch {
	case errors.Is(err, jsonexp.ErrUnknownName):
		return fault(line,
			"unknown key %q: a manifest has name, description, kind, timeout, command, parameters",
			key)
	case key == "":
		return fault(line, "a manifest is an object")
	case where.Err != nil:
		return fault(line, "%s: %v", key, where.Err)
	}
	return fault(line, "%s: a %v does not fit here", key, where.JSONKind)
}

// keyLine finds the line that sets a key or begins its table, or returns 0.
func keyLine(data []byte, key string) int {
	at := regexp.MustCompile(`(?m)^[\s{,]*\[*["']?` + regexp.QuoteMeta(key) + `\b`).FindIndex(data)
	if at == nil {
		return 0
	}
	return lineAt(data, at[1])
}

// executable finds the program of a manifest without command: the executable file of
// its name, or the only one with an ending.
func executable(dir, name string) (string, *Fault) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fault(0, "%v", err)
	}
	found := map[string]bool{}
	for _, e := range entries {
		if e.Name() != name && strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())) != name {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() &&
			info.Mode()&0o111 != 0 {
			found[path] = true
		}
	}
	switch {
	case found[filepath.Join(dir, name)]:
		return filepath.Join(dir, name), nil
	case len(found) == 1:
		return slices.Collect(maps.Keys(found))[0], nil
	case len(found) > 1:
		var names []string
		for path := range found {
			names = append(names, filepath.Base(path))
		}
		slices.Sort(names)
		return "", fault(0, "%s could all be its program: say which with command",
			strings.Join(names, ", "))
	}
	return "", fault(0,
		"no executable file %s or %s.* lies beside it: add one (chmod +x), or say what to "+
			"run with command", name, name)
}
