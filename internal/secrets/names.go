package secrets

import (
	"slices"
	"strings"
)

// certainty is how certain it is that a name announces a secret.
type certainty int

const (
	no certainty = iota
	maybe
	surely
)

// longestName bounds the part of a name that counts, from its end, in bytes.
const longestName = 64

// Names reports whether a name announces a secret. It may be the name of a flag, a variable, a
// header, a member or a parameter, such as --api-key, DB_PASSWORD or clientSecret. The last word of
// a name decides: --auth-timeout, TOKEN_FILE and max_tokens announce other values.
func Names(name string) bool { return certaintyOf(name) == surely }

// MayName reports whether a name could announce a secret, such as key or session.
func MayName(name string) bool { return certaintyOf(name) > no }

// strongEnds are the ends of last words that name a secret.
var strongEnds = []string{
	"password", "passwd", "passphrase", "passcode", "secret", "token", "apikey", "secretkey",
	"accesskey", "privatekey", "authkey", "accountkey", "credential", "credentials",
}

// strongWords are last words that name a secret even without other words.
var strongWords = []string{"pass", "pwd", "jwt", "sas", "authorization", "cookie", "dbpass",
	"userpass", "pgpass"}

// weakWords are last words that may name a secret.
var weakWords = []string{
	"key", "auth", "sig", "signature", "session", "dsn", "pat", "pw", "creds", "cred", "private",
	"code", "bearer", "tokens", "passwords", "secrets", "keys",
}

// keysOfSecrets are the words before "key" that make it the name of a secret, and publicKeys the
// words of other keys.
var (
	keysOfSecrets = []string{
		"api", "access", "secret", "private", "auth", "account", "signing", "encryption", "master",
		"admin", "service",
		"shared", "storage", "subscription", "license", "client", "deploy", "webhook", "consumer",
		"decryption", "openai", "anthropic", "gemini",
	}
	publicKeys = []string{
		"public", "primary", "foreign", "sort", "partition", "cache", "idempotency", "host", "pub",
		"registry", "hot",
	}
	// otherTokens are words before "token" that make it a part of a text or a place in a list.
	otherTokens = []string{
		"next", "page", "continuation", "sync", "cancel", "cancellation", "stop", "eos", "bos",
		"pad", "unk", "mask",
		"sep", "cls", "special", "progress", "per", "unexpected", "max", "invalid", "start", "end",
		"first", "last",
	}
)

func certaintyOf(name string) certainty {
	name = name[max(0, len(name)-longestName):]
	word, rest := lastWord(name)
	if word == "" {
		return no
	}
	before, _ := lastWord(rest)
	switch {
	case word == "key" && slices.Contains(keysOfSecrets, before), word == "base" && before == "key":
		return surely
	case word == "key" && slices.Contains(publicKeys, before):
		return no
	case word == "token" && slices.Contains(otherTokens, before), word == "auth" && before == "no":
		return no
	case slices.Contains(strongWords, word):
		return surely
	case slices.Contains(weakWords, word):
		return maybe
	}
	for _, end := range strongEnds {
		if strings.HasSuffix(word, end) {
			return surely
		}
	}
	return no
}

// lastWord splits the last word off a name, in small letters: of api-key, API_KEY and apiKey it is
// key. A number at the end does not count.
func lastWord(name string) (word, rest string) {
	end := len(name)
	for end > 0 && !isLetter(name[end-1]) {
		end--
	}
	start := end
	if start > 0 && isSmall(name[start-1]) {
		for start > 0 && isSmall(name[start-1]) {
			start--
		}
		if start > 0 && isCapital(name[start-1]) {
			start--
		}
	} else {
		for start > 0 && isCapital(name[start-1]) {
			start--
		}
	}
	return strings.ToLower(name[start:end]), name[:start]
}

func isSmall(c byte) bool { return c >= 'a' && c <= 'z' }

func isCapital(c byte) bool { return c >= 'A' && c <= 'Z' }

func isLetter(c byte) bool { return isSmall(c) || isCapital(c) }
