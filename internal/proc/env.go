package proc

import (
	"maps"
	"os"
	"slices"
	"strings"
)

// passed are the variables that every child inherits. A program needs them to find its files, its
// language and the network. Secrets are passed only by name. A trailing * matches any ending.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "TERM", "COLORTERM", "NO_COLOR",
	"LANG", "LANGUAGE", "LC_*", "XDG_*",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"all_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
}

// Environ returns a child's environment as NAME=value: the variables that every child inherits, the
// further variables that allow names (a trailing * matches any ending), and the variables of add,
// which replace inherited ones.
func Environ(add map[string]string, allow ...string) []string {
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if _, replaced := add[name]; !replaced && (allowed(name, passed) || allowed(name, allow)) {
			env = append(env, pair)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(add)) {
		env = append(env, name+"="+add[name])
	}
	return env
}

func allowed(name string, list []string) bool {
	return slices.ContainsFunc(list, func(a string) bool {
		prefix, more := strings.CutSuffix(a, "*")
		return name == a || more && strings.HasPrefix(name, prefix)
	})
}
