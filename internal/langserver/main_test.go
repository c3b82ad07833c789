package langserver

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// atExit ends the fixtures that tests share.
var atExit []func()

type suite struct{ *testing.M }

func (s suite) Run() int {
	code := s.M.Run()
	for _, end := range atExit {
		end()
	}
	return code
}

// TestMain lets the test program also be an MCP server, and a program that is no language server.
func TestMain(m *testing.M) {
	if impostor := impostors[os.Getenv(impostorVar)]; impostor != nil {
		impostor()
		return
	}
	if os.Getenv(mcpVar) != "" {
		serveMCP(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(suite{m})
}

const mcpVar = "LANGSERVER_TEST_MCP"

// serveMCP is an MCP server with one tool, shout.
func serveMCP(in io.Reader, out io.Writer) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				ProtocolVersion string
				Arguments       struct{ Text string }
			}
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		var result any
		switch m.Method {
		case "initialize":
			result = object{
				"protocolVersion": m.Params.ProtocolVersion,
				"capabilities":    object{"tools": object{}},
				"serverInfo":      object{"name": "test", "version": "1"},
			}
		case "tools/list":
			// A schema without required: the server is not strict about these.
			result = object{"tools": []any{object{
				"name": "shout", "description": "Shouts.",
				"inputSchema": object{"type": "object",
					"properties": object{"text": object{"type": "string"}}},
			}}}
		case "tools/call":
			result = object{"content": []any{object{"type": "text",
				"text": strings.ToUpper(m.Params.Arguments.Text)}}}
		default:
			result = object{}
		}
		line, err := json.Marshal(object{"jsonrpc": "2.0", "id": m.ID, "result": result})
		if err != nil {
			panic(err)
		}
		_, _ = out.Write(append(line, '\n'))
	}
}
