package mcpclients

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/secrets"
)

// Provider files for the MCP servers of a client.

// ProviderFile is the text of a provider file of kind mcp, with the name of the provider. Variables
// are the variables that the gateway's environment must have. Moved names, by its variable, the
// place where a secret was found.
type ProviderFile struct {
	Name      string
	Text      []byte
	Variables []string
	Moved     map[string]string
}

// Providers makes a provider file of each server that can be one; for the others it returns nil.
// The names are valid and differ. A variable replaces each text that may be a secret.
func Providers(servers []Imported) []*ProviderFile {
	n := &namer{providers: map[string]bool{}, values: map[string]string{}}
	// A variable that some file names already has a value, which is unknown here.
	for _, s := range servers {
		for _, texts := range []map[string]string{s.Env, s.Headers} {
			for _, text := range texts {
				for _, name := range namesIn(text) {
					n.values[name] = "${" + name + "}"
				}
			}
		}
	}
	files := make([]*ProviderFile, len(servers))
	for i, s := range servers {
		if s.Reason == "" {
			files[i] = n.file(s)
		}
	}
	return files
}

// namer gives names that differ.
type namer struct {
	providers map[string]bool
	values    map[string]string // of variables
}

// provider makes a provider's name. Some file systems don't tell capital letters from small ones.
func (n *namer) provider(name string) string {
	const most = 60 // of 64 characters: a number may follow
	name = strings.TrimLeft(notProviderName.ReplaceAllString(name, "-"), "._-")
	if name = name[:min(len(name), most)]; name == "" {
		name = "mcp"
	}
	unique := name
	for i := 2; n.providers[strings.ToLower(unique)]; i++ {
		unique = name + "-" + strconv.Itoa(i)
	}
	n.providers[strings.ToLower(unique)] = true
	return unique
}

var notProviderName = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// variable returns the name of a variable for a secret: the wanted one, unless that has another
// value.
func (n *namer) variable(value string, wanted ...string) string {
	for i := 0; ; i++ {
		name := wanted[min(i, len(wanted)-1)]
		if i >= len(wanted) {
			name += "_" + strconv.Itoa(i)
		}
		if has, taken := n.values[name]; !taken || has == value {
			n.values[name] = value
			return name
		}
	}
}

func (n *namer) file(s Imported) *ProviderFile {
	f := &ProviderFile{Name: n.provider(s.Name), Moved: map[string]string{}}
	env, headers := maps.Clone(s.Env), maps.Clone(s.Headers)
	for _, key := range slices.Sorted(maps.Keys(env)) {
		if value := env[key]; mayBeSecret(key, value) {
			name := n.variable(value, variableNameOf(key), variableName(f.Name, key))
			env[key], f.Moved[name] = "${"+name+"}", fmt.Sprintf("env %s of %q", key, s.Name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(headers)) {
		scheme, secret := "", headers[key]
		if len(namesIn(secret)) > 0 || slices.Contains(plainHeaders, strings.ToLower(key)) {
			continue
		}
		suffix := key
		if strings.EqualFold(key, authorization) {
			suffix = "TOKEN"
			if word, rest, ok := strings.Cut(secret, " "); ok {
				scheme, secret = word+" ", rest
			}
		}
		name := n.variable(secret, variableName(f.Name, suffix))
		headers[key], f.Moved[name] = scheme+"${"+name+"}",
			fmt.Sprintf("header %s of %q", key, s.Name)
	}
	for _, texts := range []map[string]string{env, headers} {
		for _, text := range texts {
			f.Variables = append(f.Variables, namesIn(text)...)
		}
	}
	slices.Sort(f.Variables)
	f.Variables = slices.Compact(f.Variables)
	f.Text = s.text(env, headers)
	return f
}

// text is a provider file.
func (s *Imported) text(env, headers map[string]string) []byte {
	const longest = time.Hour // the longest time in a provider file
	content := struct {
		Kind    string            `toml:"kind"`
		Command []string          `toml:"command,omitempty"`
		URL     string            `toml:"url,omitempty"`
		CWD     string            `toml:"cwd,omitempty"`
		Allow   []string          `toml:"allow,omitempty"`
		Deny    []string          `toml:"deny,omitempty"`
		Timeout string            `toml:"timeout,omitempty"`
		Enabled *bool             `toml:"enabled,omitempty"`
		Env     map[string]string `toml:"env,omitempty"`
		Headers map[string]string `toml:"headers,omitempty"`
	}{Kind: "mcp", Command: s.Command, URL: s.URL, Allow: s.Allow, Deny: s.Deny}
	if s.URL == "" {
		content.CWD, content.Env = s.Dir, env
	} else {
		content.Headers = headers
	}
	if s.Timeout > 0 {
		content.Timeout = min(max(s.Timeout, time.Second), longest).Round(time.Millisecond).String()
	}
	if s.Disabled {
		content.Enabled = new(false)
	}
	text := bytes.NewBufferString("# tapctl mcp import wrote this file. " +
		"`tapgw config schema provider` describes all keys.\n")
	encoder := toml.NewEncoder(text)
	encoder.Indent = ""
	_ = encoder.Encode(content) // strings, lists and maps of them have a form in TOML
	return text.Bytes()
}

// plainHeaders are no secrets.
var plainHeaders = []string{"accept", "accept-language", "content-type", "user-agent"}

// variableNameOf keeps the name of a variable that is valid.
func variableNameOf(key string) string {
	if validName.MatchString(key) {
		return key
	}
	return variableName(key)
}

var (
	validName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
	reference = lazyregexp.New(`\$\{([^}]*)\}`)
	plainText = lazyregexp.New(
		`^(?i:true|false|on|off|yes|no|null)$|^[0-9]{1,6}(\.[0-9]{1,3})?$|^[a-z]{1,12}([-_.,][a-z]{1,12})?$`,
	)
	plainURL = lazyregexp.New(`^[a-z]+://[A-Za-z0-9.\[\]:-]+(/[a-z0-9._-]{0,16}){0,4}$`)
)

// namesIn returns the variables of a text.
func namesIn(text string) (names []string) {
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// mayBeSecret reports whether the value of a variable does not look harmless.
func mayBeSecret(key, value string) bool {
	if value == "" || len(namesIn(value)) > 0 {
		return false
	}
	if isSecretBehind(key, value) {
		return true
	}
	if plainText.MatchString(value) || plainURL.MatchString(value) {
		return false
	}
	if strings.HasPrefix(value, "/") {
		_, err := os.Stat(value)
		return err != nil
	}
	return true
}

// isSecretBehind reports whether a value may be a secret because of the name before it.
func isSecretBehind(name, value string) bool {
	if secrets.Names(name) {
		return true
	}
	if !secrets.MayName(name) || plainText.MatchString(value) && !isLetters(value) {
		return false
	}
	_, err := os.Stat(value) // --key client.pem
	return err != nil
}

// isLetters reports whether a text is a word, which a short key may be, and no number.
func isLetters(text string) bool {
	return strings.Trim(text, "0123456789.") != "" && !isSetting.MatchString(text)
}

// isSetting matches words that are values of settings, and never keys.
var isSetting = lazyregexp.New(
	`^(?i:true|false|on|off|yes|no|null|none|auto|default|basic|bearer|oauth|oauth2)$`)

// hasSecret reports whether a URL may have a secret in it.
func hasSecret(address string) bool {
	u, err := url.Parse(address)
	if err != nil || len(secrets.Find(address)) > 0 {
		return true
	}
	// A user's name alone, as in postgresql://u@db, is no secret. But tokens also stand at its
	// place.
	user := u.User.Username()
	if _, hasPassword := u.User.Password(); hasPassword || user != "" &&
		!plainText.MatchString(user) {
		return true
	}
	for key, values := range u.Query() {
		for _, value := range values {
			if isSecretBehind(key, value) || !plainText.MatchString(value) {
				return true
			}
		}
	}
	return slices.ContainsFunc(strings.Split(u.Path, "/"), secrets.LooksRandom)
}

// isSecretWord reports whether a word of a command may be a secret, by the word before it and its
// own look.
func isSecretWord(before, word string) bool {
	word = reference.ReplaceAllString(word, "")
	if len(secrets.Find(word)) > 0 || secrets.LooksRandom(word) {
		return true
	}
	if strings.Contains(word, "://") {
		address := word[strings.IndexByte(word, '=')+1:] // --url=https://…
		if !strings.Contains(address, "://") {
			address = word // a parameter has the sign
		}
		return hasSecret(address)
	}
	// --token=…, and -e TOKEN=… of docker
	if name, value, ok := strings.Cut(word, "="); ok && value != "" {
		return isSecretBehind(name, value) || secrets.LooksRandom(value)
	}
	if header, value, ok := strings.Cut(word, ":"); ok && headerFlag.MatchString(before) {
		return value != "" &&
			!slices.Contains(plainHeaders, strings.ToLower(strings.TrimSpace(header)))
	}
	if !strings.HasPrefix(before, "-") || strings.HasPrefix(word, "-") || word == "" {
		return false
	}
	_, password, hasPassword := strings.Cut(word, ":")
	isUser := before == "-u" || before == "--user"
	return isSecretBehind(before, word) || isUser && hasPassword && !plainText.MatchString(password)
}

var headerFlag = lazyregexp.New(`^(-H|--headers?)$`)

// mixed returns the name of a text that has both a variable and a possible secret, or "" if there
// is no such text.
func mixed(texts map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		rest := reference.ReplaceAllString(texts[name], "")
		if rest != texts[name] && longWord.MatchString(rest) {
			return name
		}
	}
	return ""
}

var longWord = lazyregexp.New(`[A-Za-z0-9]{9,}`)
