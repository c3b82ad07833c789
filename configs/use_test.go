package configs

import (
	"path/filepath"
	"testing"
)

// Check reports rules that never hold, at their place. The gateway takes the file.
func TestCheckFindsRulesThatNeverHold(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		file, text string
		want       []string
	}{
		{"d.toml",
			"[copilot.permissions]\nallow_commands = [\"chmod *\"]\ndeny_commands = [\"chmod *x*\"]\n", nil},
		{"a.toml",
			"[copilot.permissions]\nallow_commands = [\"git log\", \"go test *\", \"make *-short\"]\n", nil},
		{
			"b.toml",
			"[copilot.permissions]\nallow_commands = [\"git push origin\", \"sudo *\"]\ndeny_commands = [\"git push\"]\n",
			[]string{
				`2:19: copilot.permissions.allow_commands[0]: "git push origin": never holds: deny_commands has "git push", which`,
				`2:38: copilot.permissions.allow_commands[1]: "sudo *": never holds: a rule can't allow any command`,
			},
		},
		{
			"c.toml",
			"[copilot.permissions]\nallow_urls = [\"a.example\"]\ndeny_urls = [\"a.example\"]\n",
			[]string{`2:15: copilot.permissions.allow_urls[0]: "a.example": never holds: deny_urls has it, too`},
		},
		{
			"providers/p.toml",
			"kind = \"connect\"\nallow = [\"get_*\"]\ndeny = [\"*\"]\n",
			[]string{`2:10: allow[0]: "get_*": never holds: deny covers it`},
		},
	} {
		file := write(t, filepath.Join(dir, tt.file), tt.text)
		faults, err := Check(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range faults {
			faults[i].File = "f.toml"
		}
		matchFaults(t, faults, tt.want)
		if tt.file[0] != 'p' {
			if _, err := (Files{User: file}).Load(); err != nil {
				t.Errorf("%s: Load: got %v, want no error", tt.file, err)
			}
		}
	}
}
