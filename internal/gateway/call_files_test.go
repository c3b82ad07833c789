package gateway

import (
	"encoding/json"
	"testing"

	"tapgw/internal/protocol"
)

// TestFileRuleSeesEachFile: a rule about files sees all files of a call, those of a patch included,
// and a rule that may deny matches a patch that can't be read.
func TestFileRuleSeesEachFile(t *testing.T) {
	quote := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	patch := func(lines string) string {
		return quote("*** Begin Patch\n" + lines + "\n*** End Patch")
	}
	unified := quote("--- a/x.key\n+++ b/x.key\n@@ -1 +1 @@\n-a\n+b\n")
	tests := map[string]struct {
		tool, args    string
		deny, context bool // a rule with this action matches
	}{
		"moved from": {patchTool, patch("*** Update File: x.key\n*** Move to: y\n-a"), true,
			true},
		"moved to": {patchTool, patch("*** Update File: y\n*** Move to: x.key\n-a"), true,
			true},
		"removed": {patchTool, patch("*** Add File: y\n+a\n*** Delete File: d/x.key"),
			true, true},
		"in an object": {patchTool, `{"input":` + patch("*** Delete File: x.key") + `}`, true,
			true},
		"unified":          {patchTool, `{"input":` + unified + `}`, true, true},
		"not to be read":   {patchTool, patch("*** Rename File: x.key"), true, false},
		"others":           {patchTool, patch("*** Delete File: x.txt"), false, false},
		"text of the file": {patchTool, patch("*** Update File: y\n+x.key"), false, false},
		"a list":           {"grep", `{"pattern":"a","paths":["y","x.key"]}`, true, true},
		"one in a list":    {"grep", `{"paths":"x.key"}`, true, true},
		"one of words":     {"rg", `{"pattern":"a","path":"y d/x.key"}`, true, true},
		"words in a list":  {"grep", `{"pattern":"a","paths":["z","x.key y"]}`, true, true},
		"words of another": {"view", `{"path":"x.key y"}`, false, false},
		"objects": {"multi", `{"replacements":[{"filePath":"y"},{"filePath":"x.key"}]}`,
			true, true},
		"directory":     {"create_directory", `{"dirPath":"x.key"}`, true, true},
		"twice":         {"view", `{"path":"y","path":"x.key"}`, true, false},
		"another field": {"say", `{"text":"x.key"}`, false, false},
		"no object":     {"say", `null`, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for action, want := range map[string]bool{
				protocol.ActionDeny: tt.deny, protocol.ActionGate: tt.deny,
				protocol.ActionContext: tt.context,
			} {
				p := &Provider{}
				rules, fault := p.compileRules("", []protocol.Rule{
					{Match: protocol.Match{File: "*.key"}, Action: action},
				})
				if fault != nil {
					t.Fatal(fault)
				}
				if got := rules[0].match(&toolCall{tool: tt.tool, args: protocol.Raw(tt.args)},
					nil); got != want {
					t.Errorf("a rule with action %s matches: %t, want %t", action, got, want)
				}
			}
		})
	}
}
