package mcpbridge

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// This program is its own MCP server: MCP_CHILD selects its behaviour.
func TestMain(m *testing.M) {
	if mode := os.Getenv("MCP_CHILD"); mode != "" {
		child(mode)
		return
	}
	goleak.VerifyTestMain(m)
}
