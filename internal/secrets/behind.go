package secrets

import (
	"strings"
)

// Secrets that are found by the name before them.

// behind finds the secret that the run of a text from i to end announces: by its name, as a scheme
// of authentication, or as the scheme of a URL.
func behind(text string, i, end int) (Span, bool) {
	if end == len(text) {
		return Span{}, false
	}
	switch c := text[end]; {
	case c == ':' && strings.HasPrefix(text[end:], "://"):
		return inURL(text, end+len("://"))
	case c == ' ' || c == '\t':
		if s, ok := ofScheme(text, i, end); ok {
			return s, true
		}
		isFlag := i > 0 && text[i-1] == '-'
		if next := skip(text, end, " \t"); !isFlag && (next == len(text) || text[next] != '=' &&
			text[next] != ':') {
			return Span{}, false
		}
	case c != '=' && c != ':' && c != '"' && c != '\'' && c != '\\':
		return Span{}, false
	}
	name := text[nameStart(text, i):end]
	if isUserFlag(text, name, i) {
		return ofUser(text, end)
	}
	level := certaintyOf(name)
	if level == no {
		return Span{}, false
	}
	v, ok := valueAt(text, end, strings.HasPrefix(name, "-"))
	if !ok {
		return Span{}, false
	}
	v.isParameter = isParameter(text, end-len(name))
	return v.span(text, name, level)
}

// nameStart returns where the name begins of which the run that begins at i is the last part.
func nameStart(text string, i int) int {
	least := max(0, i-longestName)
	for i > least && (isName[text[i-1]] || text[i-1] == '-' || text[i-1] == '.') {
		i--
	}
	return i
}

// isParameter reports whether a name that begins at i is the name of a URL's parameter.
func isParameter(text string, i int) bool { return i > 0 && (text[i-1] == '?' || text[i-1] == '&') }

// value is the place of the value behind a name.
type value struct {
	start, end  int
	quote       byte // 0: no quotes
	isApart     bool // there is white space before it, and it is not the value of a flag
	isFlag      bool
	isParameter bool
}

// valueAt reads the value behind a name that ends at i: name=value, name: value, "name": "value",
// --name value.
func valueAt(text string, i int, isFlag bool) (v value, ok bool) {
	v.isFlag = isFlag
	at := skip(text, i, `\`)
	if at < len(text) && (text[at] == '"' || text[at] == '\'') {
		at++ // the end of a member's name
	} else if at > i {
		return v, false
	}
	spaced := skip(text, at, " \t")
	switch {
	case spaced == len(text):
		return v, false
	case text[spaced] == '=' || text[spaced] == ':':
		separator := spaced
		at = skip(text, spaced, "=:>")
		if s := text[separator:at]; s != "=" && s != ":" && s != ":=" && s != "=>" {
			return v, false // a comparison, or a path such as a::b
		}
		spaced = skip(text, at, " \t")
		v.isApart = spaced > at || separator > i
	case !isFlag || spaced == at:
		return v, false
	}
	at = skip(text, spaced, `\`)
	if at < len(text) && (text[at] == '"' || text[at] == '\'' || text[at] == '`') {
		quote := text[at]
		v.quote, v.start = quote, at+1
	} else {
		v.start = spaced
	}
	v.end = v.endIn(text[:min(len(text), v.start+longestJudged)])
	return v, v.end > v.start
}

// longestJudged bounds how much of a value is looked at before it is known to be a secret, in
// bytes.
const longestJudged = 512

// endIn returns where the value ends in a text.
func (v value) endIn(text string) int {
	switch v.quote {
	case 0:
		return wordEnd(text, v.start)
	case whole:
		return len(text)
	}
	end := v.start
	for end < len(text) && text[end] != v.quote && text[end] != '\n' {
		end++
	}
	for end > v.start && text[end-1] == '\\' {
		end--
	}
	return end
}

// skip returns the first position from i on with a byte that is not in bytes.
func skip(text string, i int, bytes string) int {
	for i < len(text) && strings.IndexByte(bytes, text[i]) >= 0 {
		i++
	}
	return i
}

// wordEnd returns where a value without quotes ends.
func wordEnd(text string, i int) int {
	for i < len(text) && text[i] > ' ' && !isEnd[text[i]] {
		i++
	}
	return i
}

// isEnd are the characters that end a value without quotes.
var isEnd = [256]bool{
	'"': true, '\'': true, '`': true, ',': true, ';': true, '&': true, '|': true, '<': true,
	'>': true, '(': true, ')': true, '[': true, ']': true, '{': true, '}': true, 0x7f: true,
}

// span returns the secret in a value, by the name before it.
func (v value) span(text, name string, level certainty) (Span, bool) {
	word, _ := lastWord(name)
	switch word {
	case "authorization":
		// The scheme is not a secret.
		if space := strings.IndexByte(text[v.start:min(len(text), v.start+24)], ' '); space > 0 &&
			isScheme(text[v.start:v.start+space]) {
			end := v.end
			if v.start += space + 1; v.quote == 0 {
				end = wordEnd(text, v.start)
			}
			v.end = max(end, v.start)
		} else if isScheme(text[v.start:v.end]) {
			return Span{}, false
		}
		v.isApart = false
	case "cookie":
		if judged := text[:min(len(text), v.start+longestJudged)]; v.quote == 0 {
			for v.end < len(judged) && strings.IndexByte("\n\"'", judged[v.end]) < 0 {
				v.end++
			}
		}
		if strings.IndexByte(text[v.start:v.end], '=') < 0 {
			return Span{}, false
		}
	}
	found := text[v.start:v.end]
	if v.isParameter {
		found, _, _ = strings.Cut(found, "#")
		v.end = v.start + len(found)
	}
	if found == "" || isNoSecret(found, name) || v.quote == 0 && isCall(text, v.end) {
		return Span{}, false
	}
	isCode := v.quote == 0 && !v.isFlag && !isCapital(lastByte(name))
	switch {
	case level == maybe && v.isParameter && len(found) >= 12:
	case name == "PASS" && v.isApart && v.quote == 0:
		return Span{}, false // of a test
	case level == maybe && word == "auth" && isBasic(found): // of Docker
	case level == maybe && (!LooksRandom(found) || isHexWord(found)):
		return Span{}, false
	case isCode && v.isApart && !isLikelySecret(found):
		return Span{}, false
	case isCode && isIdentifier(found):
		return Span{}, false
	}
	if v.end-v.start >= longestJudged-longestName {
		v.end = max(v.end, v.endIn(text))
	}
	return Span{v.start, v.end, Secret}, true
}

// whole is the quote of a value that is a whole text.
const whole = 0xff

func lastByte(s string) byte { return s[len(s)-1] }

// isCall reports whether a value goes on like a call or an index of program code.
func isCall(text string, end int) bool {
	return end < len(text) && (text[end] == '(' || text[end] == '[')
}

// isNoSecret reports whether a value is a reference, a placeholder, a path, or a word that is never
// a secret.
func isNoSecret(text, name string) bool {
	switch c := text[0]; {
	case isReference(text, name):
		return true
	case c == '/' || c == '~' || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../"):
		return isPath(text)
	}
	if len(text) > 64 {
		return false
	}
	lower := strings.ToLower(text)
	switch strings.TrimRight(lower, ".!?:") {
	case "", "true", "false", "null", "none", "nil", "undefined", "yes", "no", "on", "off",
		"string", "number",
		"boolean", "required", "optional", "redacted", "hidden", "token", "secret", "tokens",
		"missing", "empty", "unset", "set", "expired", "invalid", "str", "int", "bool":
		return true
	}
	if strings.EqualFold(text, strings.TrimLeft(name, "-")) ||
		strings.Trim(lower, "x.*•#_-") == "" {
		return true
	}
	if strings.HasPrefix(lower, "your") && !strings.ContainsAny(lower, "0123456789") {
		return true
	}
	for _, begin := range []string{"my-", "process.env", "os.environ", "os.getenv", "env:", "env.",
		"env(",
		"op://", "vault:", "file:", "secretref", "${{", "…", "arn:"} {
		if strings.HasPrefix(lower, begin) {
			return true
		}
	}
	return strings.Contains(lower, "your-") || strings.Contains(lower, "your_")
}

// isReference reports whether a value as a whole stands for another: a variable, a placeholder in
// brackets, an alias, a file, or the flag that follows a flag without a value. Passwords may begin
// with the same signs.
func isReference(text, name string) bool {
	rest := text[1:]
	switch text[0] {
	case '$':
		isHash := strings.Count(text, "$") > 2 && rest[0] >= '0' && rest[0] <= '9' // $2b$10$...
		return rest == "" || rest[0] == '{' || rest[0] == '(' || !isHash &&
			strings.Trim(rest, nameBytes+"$.:/->") == ""
	case '%':
		return strings.IndexByte(rest[:min(len(rest), 63)], '%') > 0
	case '<', '{', '[':
		closing := map[byte]string{'<': ">", '{': "}", '[': "]"}[text[0]]
		return rest == "" || strings.Contains(rest, closing)
	case '*', '@':
		return strings.Trim(rest, nameBytes+"./~*-") == ""
	case '-':
		return strings.HasPrefix(name, "-") || strings.Trim(rest, "0123456789.") == ""
	}
	return false
}

// nameBytes are the bytes that isName accepts.
const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// isPath reports whether a text that begins like a path looks like one as a whole. Keys that begin
// with a slash are in base64, which has capital letters and digits.
func isPath(text string) bool {
	return strings.ContainsAny(text[1:], "./-_ ") && !strings.ContainsAny(text, "+=") ||
		!strings.ContainsAny(text, "0123456789")
}

// isIdentifier reports whether a value is a name in program code, such as self.token.
func isIdentifier(text string) bool {
	hasDot := false
	for i := range len(text) {
		if c := text[i]; !isLetter(c) && c != '_' && c != '.' {
			return false
		}
		hasDot = hasDot || text[i] == '.'
	}
	return hasDot && lastByte(text) != '.'
}

// isLikelySecret reports whether a word of a text for people is no word of a language.
func isLikelySecret(text string) bool {
	var small, capital, other bool
	for i := range len(text) {
		switch c := text[i]; {
		case isSmall(c):
			small = true
		case isCapital(c) && i > 0:
			capital = true
		case !isCapital(c) && c != '.' && c != ':' && c != '?' && c != '!':
			other = true
		}
	}
	return len(text) >= 6 && (other || small && capital)
}

// isHexWord reports whether a text has only hexadecimal digits, as checksums have.
func isHexWord(text string) bool {
	return strings.Trim(text, "0123456789abcdefABCDEF-") == ""
}

// isScheme reports whether a word is a scheme of authentication.
func isScheme(word string) bool {
	switch strings.ToLower(word) {
	case "bearer", "basic", "token", "apikey", "bot", "digest", "negotiate":
		return true
	}
	return false
}

// ofScheme finds the secret behind the words Bearer and Basic.
func ofScheme(text string, i, end int) (Span, bool) {
	if end-i != len("bearer") && end-i != len("basic") {
		return Span{}, false
	}
	isBearer := strings.EqualFold(text[i:end], "bearer")
	if !isBearer && !strings.EqualFold(text[i:end], "basic") {
		return Span{}, false
	}
	start := skip(text, end, " \t")
	stop := wordEnd(text, start)
	if stop == start || isNoSecret(text[start:stop], "") {
		return Span{}, false
	}
	if isBearer && stop-start >= 8 && isLikelySecret(text[start:stop]) || !isBearer &&
		isBasic(text[start:stop]) {
		return Span{start, stop, Secret}, true
	}
	return Span{}, false
}

// isUserFlag reports whether a name is a flag of curl and its like that a user and a password
// follow.
func isUserFlag(text, name string, i int) bool {
	return (name == "-u" || name == "--user" || name == "--proxy-user") &&
		strings.Contains(text[max(0, i-256):i], "curl")
}

// ofUser finds the password behind such a flag.
func ofUser(text string, end int) (Span, bool) {
	v, ok := valueAt(text, end, true)
	if !ok {
		return Span{}, false
	}
	_, password, ok := strings.Cut(text[v.start:v.end], ":")
	if !ok || password == "" || isNoSecret(password, "") {
		return Span{}, false
	}
	return Span{v.end - len(password), v.end, Secret}, true
}
