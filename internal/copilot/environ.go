package copilot

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/github/copilot-sdk/go/rpc"
)

// The variables that the runtime, and so the model's shell, inherits. With them it finds its home,
// its sign-in, the network and the user's language.
var (
	inherited = []string{
		"HOME", "PATH", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "TMPDIR",
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
		"DBUS_SESSION_BUS_ADDRESS", // the keyring that holds the sign-in
		"SYSTEMROOT", "SYSTEMDRIVE", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "COMSPEC", "PATHEXT",
		"TEMP", "TMP",
	}
	inheritedPrefixes = []string{"LC_", "XDG_", "COPILOT_", "GH_", "GITHUB_"}
	// With a connection token, the runtime would refuse the gateway, which does not send one.
	withheld = []string{"COPILOT_CONNECTION_TOKEN"}
	// forbidden are the gateway's tokens that no session may have, even when the config names them.
	forbidden = []string{"TAP_ADMIN_TOKEN"}
)

// environment returns the runtime's environment: the inherited part of ours, then extra.
func environment(ours, extra []string) []string {
	var env []string
	for _, kv := range ours {
		name, _, ok := strings.Cut(kv, "=")
		name = strings.ToUpper(name) // proxies are written both ways
		if ok && !slices.Contains(withheld, name) &&
			(slices.Contains(inherited, name) || hasPrefix(name, inheritedPrefixes)) {
			env = append(env, kv)
		}
	}
	return append(env, withoutForbidden(extra)...)
}

// withoutForbidden returns extra without the variables that no session may have.
func withoutForbidden(extra []string) (env []string) {
	for _, kv := range extra {
		if name, _, ok := strings.Cut(kv, "="); ok && !slices.Contains(forbidden, name) {
			env = append(env, kv)
		}
	}
	return env
}

// The runtime is one process for many sessions, so a session's own token can't be in its
// environment. The shell of each session reads the token from a file before each command. The file
// is empty until the gateway knows the session, and lies outside the directory that the session may
// read without a question.

// shellFile is the file from which the shell of a session with this output directory reads its
// environment.
func shellFile(outputDir string) string { return outputDir + ".sh" }

// shellOptions make the shell read a file. They are nil if file is "".
func shellOptions(file string) *rpc.ShellOptions {
	if file == "" {
		return nil
	}
	return &rpc.ShellOptions{
		InitScripts: []rpc.ShellInitScript{{Path: file, Shell: rpc.ShellInitScriptShellBash}},
	}
}

// shellScript sets variables in the language of the shell.
func shellScript(env []string) string {
	var b strings.Builder
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	return b.String()
}

// writeShellEnv writes the session's own variables to the file that its shell reads.
func (s *session) writeShellEnv() {
	if s.shellFile == "" {
		return
	}
	script := shellScript(withoutForbidden(s.r.o.SessionEnv(s.id)))
	if err := os.WriteFile(s.shellFile, []byte(script), 0o600); err != nil {
		s.log.Warn("the session's shell has no token: programs in it can't join the session",
			"error", err)
	}
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
