package copilot

import (
	"slices"
	"strings"
)

// What the runtime, and so the model's shell, inherits: enough to find its
// home, its sign-in, the network and the user's language.
var (
	inherited = []string{
		"HOME", "PATH", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "TMPDIR",
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
		"DBUS_SESSION_BUS_ADDRESS", // the keyring that holds the sign-in
		"SYSTEMROOT", "SYSTEMDRIVE", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "COMSPEC", "PATHEXT", "TEMP", "TMP",
	}
	inheritedPrefixes = []string{"LC_", "XDG_", "COPILOT_", "GH_", "GITHUB_"}
	// A runtime that is told a connection token refuses us, who have none.
	withheld = []string{"COPILOT_CONNECTION_TOKEN"}
	// Tokens of the gateway that no session may have, whoever asks for it.
	secret = []string{"TAP_ADMIN_TOKEN"}
)

// environment returns the runtime's environment: what it may inherit of ours,
// then the caller's own.
func environment(ours, extra []string) []string {
	var env []string
	for _, kv := range ours {
		name, _, ok := strings.Cut(kv, "=")
		name = strings.ToUpper(name) // proxies are written both ways
		if ok && !slices.Contains(withheld, name) && (slices.Contains(inherited, name) || hasPrefix(name, inheritedPrefixes)) {
			env = append(env, kv)
		}
	}
	for _, kv := range extra {
		if name, _, ok := strings.Cut(kv, "="); ok && !slices.Contains(secret, name) {
			env = append(env, kv)
		}
	}
	return env
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
