package deps

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// buildTags are the tags of make build and of releases.
const buildTags = "urfave_cli_no_docs"

// unlinked lists which packages a program may not link, nor what lies below them, in a build of
// ours. Each costs every start of the program: its variables are set before main, and its pages are
// read. A package gets on this list when its last import is gone, so that it does not come back by
// chance.
var unlinked = map[string][]string{
	"cmd/tapgw": {
		"charm.land", "github.com/ncruces/go-sqlite3", "github.com/russross/blackfriday",
		"golang.org/x/net/html", "github.com/JohannesKaufmann/html-to-markdown",
		"tapgw/tools/builtin", "tapgw/tools/internal/lsp", "tapgw/tools/internal/web",
		"tapgw/internal/langserver", "tapgw/internal/agent", "tapgw/internal/conformance",
		"tapgw/internal/evals",
	},
	"cmd/tapctl": {
		"charm.land", "github.com/russross/blackfriday", "github.com/atotto/clipboard",
		"github.com/charmbracelet/x/ansi",
		"github.com/nats-io", "github.com/modelcontextprotocol", "golang.org/x/net/html",
		copilotSDK, "tapgw/tools", "tapgw/internal/gateway", "tapgw/internal/supervisor",
		"tapgw/internal/assembly", "tapgw/internal/server", "tapgw/internal/langserver",
		"tapgw/internal/agent",
	},
	"cmd/lsclient": {
		"github.com/russross/blackfriday", "github.com/nats-io", "github.com/ncruces/go-sqlite3",
		copilotSDK, "tapgw/internal/gateway", "tapgw/internal/assembly", "tapgw/internal/server",
	},
	// The package of tapgw hook, which each tool call of a terminal waits for.
	"internal/terminals/hook": {
		"github.com/nats-io", "github.com/modelcontextprotocol", "github.com/google/jsonschema-go",
		copilotSDK, "tapgw/internal/gateway", "tapgw/tools",
	},
}

// TestLinked holds the programs against the packages that they may not link.
func TestLinked(t *testing.T) {
	for _, file := range []string{"Makefile", ".goreleaser.yaml"} {
		text, err := os.ReadFile("../../" + file)
		if err != nil || !strings.Contains(string(text), buildTags) {
			t.Errorf("%s builds without the tag %s (%v), want it there", file, buildTags, err)
		}
	}
	for program, forbidden := range unlinked {
		list := exec.Command("go", "list", "-tags", buildTags, "-deps", "./"+program)
		list.Dir = "../.."
		out, err := list.Output()
		if err != nil {
			t.Fatalf("listing what %s links: %v", program, err)
		}
		for line := range strings.Lines(string(out)) {
			path := strings.TrimSpace(line)
			if withinAny(path, forbidden) {
				t.Errorf("%s links %s, want it without", program, path)
			}
		}
	}
}
