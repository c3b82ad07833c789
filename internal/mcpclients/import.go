package mcpclients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"tapgw/configs"
	"tapgw/internal/lazyregexp"
)

// Reading of the MCP servers in a client's file.

// Imported is an MCP server of a client's file. Its texts have ${NAME} for variables, whatever the
// client writes.
type Imported struct {
	Name     string
	Command  []string
	URL      string
	Dir      string // the working directory, absolute, or ""
	Env      map[string]string
	Headers  map[string]string
	Allow    []string // names of tools, nil for all
	Deny     []string
	Timeout  time.Duration // of a call; 0 sets no timeout
	Disabled bool
	Notes    []string // further settings in the file
	Reason   string   // why the server can't be a provider, "" if it can

	isKept map[int]bool // words of Command whose variables the program itself replaces
}

// keepVariables finds the words of a command whose variables the entry itself sets in env. No
// client replaces those variables, so the program must.
func (s *Imported) keepVariables(r *reader, words []string) {
	s.isKept = map[int]bool{}
	for i, word := range words {
		names := namesIn(word)
		hasAll := len(names) > 0 && s.Command[i] == word
		for _, name := range names {
			_, has := s.Env[name]
			hasAll = hasAll && has
		}
		if s.isKept[i] = hasAll; hasAll {
			r.note(
				"word %d of its command has a variable of its env, which its program must replace",
				i+1)
		}
	}
}

// ReadServers reads the servers of a client's file, whichever client's it is, in the order of their
// names. The gateway's own entry is not among them. A file that can't be parsed, or has no servers,
// is a [configs.Fault].
func ReadServers(file string) ([]Imported, error) {
	data, err := readFile(file)
	if err == nil && data == nil {
		err = errors.New("there is no such file")
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	list, err := parseServers(file, bytes.TrimPrefix(data, bom))
	if f, ok := errors.AsType[configs.Fault](err); ok {
		f.File = file
		return nil, f
	}
	return list, err
}

// parseServers reads the servers of a text. The file's name tells TOML from JSON, and where the
// project is.
func parseServers(file string, text []byte) (list []Imported, err error) {
	if !utf8.Valid(text) {
		return nil, faultAt(text, 0, "is not UTF-8 text")
	}
	var all map[string]any
	if strings.EqualFold(filepath.Ext(file), ".toml") {
		all, err = tomlFormat{}.values(text)
	} else {
		all, err = jsonFormat{}.values(text)
	}
	if err != nil {
		return nil, err
	}
	servers := serversIn(all)
	if servers == nil {
		return nil, faultAt(
			text,
			0,
			"has no MCP servers: none of mcpServers, servers, mcp, mcp_servers, context_servers",
		)
	}
	project := projectOf(file)
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		entry, ok := servers[name].(map[string]any)
		switch {
		case !ok:
			list = append(list, Imported{Name: name, Reason: "it is no object"})
		case name == entryName && checkOurs(entry) == nil:
		default:
			list = append(list, importedOf(name, entry, project))
		}
	}
	return list, nil
}

// serversIn returns the servers of a parsed file, nil if it has no place for them.
func serversIn(all map[string]any) map[string]any {
	for _, key := range []string{"mcpServers", "servers", "mcp_servers", "context_servers", "mcp"} {
		servers, ok := all[key].(map[string]any)
		if !ok {
			continue
		}
		if inner, ok := servers["servers"].(map[string]any); ok && key == "mcp" &&
			inner["command"] == nil {
			return inner // the settings of VS Code
		}
		return servers
	}
	return nil
}

// projectOf returns the directory that a client calls the workspace when it reads a file.
func projectOf(file string) string {
	file, err := filepath.Abs(file)
	if err != nil {
		return ""
	}
	dir := filepath.Dir(file)
	if strings.HasPrefix(filepath.Base(dir), ".") { // .vscode/mcp.json
		return filepath.Dir(dir)
	}
	return dir
}

// reader reads the members of an entry.
type reader struct {
	entry   map[string]any
	project string
	notes   []string
}

func importedOf(name string, entry map[string]any, project string) Imported {
	r := &reader{entry: entry, project: project}
	if old, ok := entry["command"].(map[string]any); ok { // Zed of 2024
		entry = maps.Clone(entry)
		maps.Copy(entry, map[string]any{"command": old["path"], "args": old["args"],
			"env": old["env"]})
		r.entry = entry
	}
	s := Imported{Name: name, URL: r.text("url", "httpUrl", "serverUrl"), Dir: r.text("cwd")}
	words := commandOf(entry)
	for _, word := range words {
		s.Command = append(s.Command, r.variables(word))
	}
	isRelative := len(s.Command) > 0 && strings.HasPrefix(s.Command[0], ".")
	if s.Dir != "" && !filepath.IsAbs(s.Dir) && !strings.Contains(s.Dir, "${") || s.Dir == "" &&
		isRelative {
		s.Dir = filepath.Join(project, s.Dir)
	}
	s.Env = r.texts("env", "environment")
	for _, name := range r.list("env_vars") { // Codex: variables that go through
		s.Env[name] = "${" + name + "}"
	}
	s.keepVariables(r, words)
	s.Headers = r.texts("headers", "http_headers")
	for header, name := range r.texts("env_http_headers") {
		s.Headers[header] = "${" + name + "}"
	}
	if name := r.text("bearer_token_env_var"); name != "" {
		s.Headers[authorization] = "Bearer ${" + name + "}"
	}
	r.filters(&s)
	if seconds, ok := number(entry["tool_timeout_sec"]); ok {
		s.Timeout = time.Duration(seconds * float64(time.Second))
	} else if ms, ok := number(entry["timeout"]); ok && entry["enabled"] == nil {
		// The timeout of OpenCode is not that of calls.
		s.Timeout = time.Duration(ms * float64(time.Millisecond))
	}
	if entry["envFile"] != nil {
		r.note("its envFile is not read: set those variables where the gateway starts")
	}
	s.Notes, s.Reason = r.notes, s.check(r.text("type"))
	return s
}

// check returns why a server can't be a provider.
func (s *Imported) check(kind string) string {
	switch {
	case kind == "sse" || kind == "ws":
		return "it speaks " + kind + ", which tapgw does not; it may have a URL of streamable HTTP"
	case len(s.Command) > 0 && s.URL != "":
		return "it has both a command and a URL"
	case len(s.Command) == 0 && s.URL == "" || len(s.Command) > 0 && s.Command[0] == "":
		return "it has neither a command nor a URL"
	case strings.Contains(s.URL, "${"):
		return "its URL has a variable, which a provider file can't have"
	case s.URL != "" && hasSecret(s.URL):
		return "its URL may have a secret in it: put that into a header"
	}
	for i, word := range s.Command {
		if strings.Contains(word, "${") && !s.isKept[i] {
			return fmt.Sprintf("word %d of its command has a variable: put that into env", i+1)
		}
		if i > 0 && isSecretWord(s.Command[i-1], word) {
			return fmt.Sprintf("word %d of its command may be a secret: put that into env", i+1)
		}
	}
	if strings.Contains(s.Dir, "${") {
		return "its cwd has a variable, which a provider file can't have"
	}
	for what, texts := range map[string]map[string]string{"variable": s.Env, "header": s.Headers} {
		if name := mixed(texts); name != "" {
			return "its " + what + " " + name +
				" has a variable and text that may be a secret: put both into it"
		}
	}
	return ""
}

func (r *reader) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// text returns the first existing member.
func (r *reader) text(keys ...string) string {
	for _, key := range keys {
		if s, ok := r.entry[key].(string); ok {
			return r.variables(s)
		}
	}
	return ""
}

// texts returns an object of texts.
func (r *reader) texts(keys ...string) map[string]string {
	all := map[string]string{}
	for _, key := range keys {
		object, _ := r.entry[key].(map[string]any)
		for name, value := range object {
			if value != nil {
				all[name] = r.variables(fmt.Sprint(value))
			}
		}
	}
	return all
}

// list returns a list of texts.
func (r *reader) list(key string) []string {
	values, ok := r.entry[key].([]any)
	if !ok {
		return nil
	}
	list := []string{}
	for _, v := range values {
		if s, ok := v.(string); ok {
			list = append(list, s)
		}
	}
	return list
}

// filters reads which tools a client uses.
func (r *reader) filters(s *Imported) {
	for _, key := range []string{"tools", "includeTools", "enabled_tools"} {
		if names := r.list(key); names != nil && !slices.Contains(names, "*") {
			s.Allow = names
			if s.Disabled = len(names) == 0; s.Disabled {
				s.Allow = nil
			}
		}
	}
	for _, key := range []string{"excludeTools", "disabled_tools"} {
		s.Deny = append(s.Deny, r.list(key)...)
	}
	for _, names := range [][]string{s.Allow, s.Deny} {
		for i, name := range names {
			name, _, _ = strings.Cut(name, "(") // Gemini: tool(arguments)
			names[i] = globChars.ReplaceAllString(name, `\$0`)
		}
	}
	if on, ok := r.entry["enabled"].(bool); ok && !on || r.entry["disabled"] == true {
		s.Disabled = true
	}
}

// globChars are the characters with a meaning in globs.
var globChars = lazyregexp.New(`[*?\[\\]`)

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		return f, err == nil && f > 0
	case int64:
		return float64(v), v > 0
	case float64:
		return v, v > 0
	}
	return 0, false
}

// placeholder matches a variable in the forms of the clients: ${NAME}, ${NAME:-default},
// ${env:NAME}, ${input:name}, {env:NAME}.
var placeholder = lazyregexp.New(`\$\{(env:|input:)?([^}:]*)(:-[^}]*)?\}|\{env:([^}]*)\}`)

// bareName matches a text of Gemini's that is a variable: $NAME, Bearer $NAME. In other places, and
// for other clients, a dollar is a dollar.
var bareName = lazyregexp.New(`^([A-Za-z]+ )?\$([A-Z_][A-Z0-9_]*)$`)

var notWord = lazyregexp.New(`[^A-Za-z0-9]+`)

// variables writes the variables of a text as ${NAME}.
func (r *reader) variables(text string) string {
	text = bareName.ReplaceAllString(text, "$1$${$2}")
	return placeholder.ReplaceAllStringFunc(text, func(match string) string {
		m := placeholder.FindStringSubmatch(match)
		name := m[2] + m[4]
		switch {
		case strings.HasSuffix(name, "workspaceFolder") || name == "CLAUDE_PROJECT_DIR":
			return r.project
		case m[1] == "input:":
			return "${" + variableName(name) + "}"
		case m[3] != "":
			r.note("%s had a default, and must be set now", name)
		}
		return "${" + name + "}"
	})
}

// variableName makes the name of a variable from other words: api-key becomes API_KEY.
func variableName(words ...string) string {
	name := strings.Trim(notWord.ReplaceAllString(strings.ToUpper(strings.Join(words, "_")), "_"),
		"_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "MCP_" + name
	}
	return name
}
