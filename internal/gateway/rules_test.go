package gateway

import (
	"strings"
	"testing"

	"tapgw/internal/protocol"
)

// TestFileRuleReadsEscapes shows that a rule about files sees a path however its JSON
// is written.
func TestFileRuleReadsEscapes(t *testing.T) {
	tests := []struct{ glob, args string }{
		{"src/db/*.sql", `{"path":"src/db/1.sql"}`},
		{"src/db/*.sql", `{"path":"src\\db\\1.sql"}`},
		{"src/db/*.sql", `{"path":"src//x/../db/./1.sql"}`},
		{"src/db/*.sql", `{"path":"\u0073rc\/d\u0062/1\u002esql"}`},
		{"*.sql", `{ "path" : "1.s\u0071l" }`},
		{`say"so".txt`, `{"path":"say\"so\".txt"}`},
		{"tab\there.txt", `{"path":"tab\there.txt"}`},
		{"über.txt", `{"path":"\u00fcber.txt"}`},
		{"*.sql", `{"text":"` + strings.Repeat("x", 2000) + `","file":"1.sql"}`},
	}
	for _, tt := range tests {
		p := &Provider{}
		rule := protocol.Rule{Match: protocol.Match{File: tt.glob}, Action: protocol.ActionDeny}
		rules, fault := p.compileRules("", []protocol.Rule{rule})
		if fault != nil {
			t.Fatalf("compiling the rule: %v, want no fault", fault)
		}
		if !rules[0].match(&toolCall{args: protocol.Raw(tt.args)}, nil) {
			t.Errorf("%q does not match %s, want a match", tt.glob, tt.args)
		}
	}
}
