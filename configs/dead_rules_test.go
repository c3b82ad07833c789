package configs

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Rules that can never hold are named, and no others: a rule of plain text, or one of which a part
// is denied, holds.
func TestDeadRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tapgw.toml")
	write(t, file, `[copilot.permissions]
allow_commands = [
  "git log", "go test *", "FOO=1 make", "git push",
  "FOO=1 make *", "rm -rf *",
]
deny_commands = ["git push", "rm"]
allow_read_paths = ["src/**", "secret/**"]
allow_write_paths = ["out/*"]
deny_paths = ["secret/**", "out/*.key"]
allow_urls = ["example.com", "intern.example"]
deny_urls = ["intern.example"]
`)
	got := []string{}
	for _, f := range (Files{User: file}).DeadRules() {
		f.File = "f"
		got = append(got, f.Error())
	}
	want := []string{
		"f:3:41: copilot.permissions.allow_commands[3]: \"git push\" allows nothing: " +
			"deny_commands denies all of it, and a denial wins",
		`f:4:3: copilot.permissions.allow_commands[4]: "FOO=1 make *" allows nothing: ` +
			"with a * it must be plain words of one command",
		"f:4:19: copilot.permissions.allow_commands[5]: \"rm -rf *\" allows nothing: " +
			"deny_commands denies all of it, and a denial wins",
		"f:7:31: copilot.permissions.allow_read_paths[1]: \"secret/**\" allows nothing: " +
			"deny_paths denies all of it, and a denial wins",
		"f:10:30: copilot.permissions.allow_urls[1]: \"intern.example\" allows nothing: " +
			"deny_urls denies all of it, and a denial wins",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("dead rules (-want +got):\n%s", diff)
	}
}
