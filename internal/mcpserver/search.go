package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

const (
	maxFound   = 20 // tools in the answer of a search
	foundByDef = 8
	// The usual parameters of BM25.
	bm25K = 1.2
	bm25B = 0.75
)

type searchInput struct {
	Query string `json:"query"           jsonschema:"what the tool should do, in a few words; words of its name count most"`
	Limit int    `json:"limit,omitempty" jsonschema:"how many tools, at most 20 (default 8)"`
}

type describeInput struct {
	Name string `json:"name" jsonschema:"the tool's name, from search_tools"`
}

type callInput struct {
	Name      string          `json:"name"                jsonschema:"the tool's name, from search_tools"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// callSchema is callInput's: its arguments are any object.
const callSchema = `{"type":"object","required":["name"],"additionalProperties":false,"properties":{` +
	`"name":{"type":"string","description":"the tool's name, from search_tools"},` +
	`"arguments":{"type":"object","description":"the tool's arguments, as describe_tool gives their schema"}}}`

// searchTools are the tools of a session with too many tools to list.
func (e *endpoint) searchTools() []ownTool {
	return []ownTool{
		{"search_tools", func(name string) {
			mcp.AddTool(e.server, &mcp.Tool{Name: name, Title: "Search tools",
				Description: "Find tools of the session by what they do. It has too many to list. " +
					"describe_tool gives a tool's arguments, call_tool calls it.",
				Annotations: readOnly(),
			}, e.search)
		}},
		{"describe_tool", func(name string) {
			mcp.AddTool(e.server, &mcp.Tool{Name: name, Title: "Describe a tool",
				Description: "Get a tool's description and the JSON Schema of its arguments.", Annotations: readOnly(),
			}, e.describe)
		}},
		{"call_tool", func(name string) {
			e.server.AddTool(&mcp.Tool{Name: name, Title: "Call a tool",
				Description: "Call a tool of the session by its name.", InputSchema: json.RawMessage(callSchema),
			}, e.callNamed)
		}},
	}
}

// sessionTools are the providers' tools of the session of now.
func (e *endpoint) sessionTools() []adminapi.Tool {
	if s := e.session(); s != nil {
		return s.Tools()
	}
	return nil
}

// search is the tool search_tools.
func (e *endpoint) search(_ context.Context, _ *mcp.CallToolRequest, in searchInput) (*mcp.CallToolResult, any, error) {
	if in.Limit < 0 || in.Limit > maxFound {
		return refuse(protocol.CodeInvalidArguments, fmt.Sprintf("limit: must be from 1 to %d", maxFound))
	}
	type found struct {
		Name        string `json:"name"`
		Provider    string `json:"provider"`
		Description string `json:"description"`
	}
	tools := e.sessionTools()
	list := []found{}
	for _, i := range rank(in.Query, tools, cmp.Or(in.Limit, foundByDef)) {
		list = append(list, found{tools[i].Name, tools[i].Provider, tools[i].Description})
	}
	return answer(struct {
		Tools []found `json:"tools"`
		Of    int     `json:"of"` // all tools
	}{list, len(tools)})
}

// describe is the tool describe_tool.
func (e *endpoint) describe(_ context.Context, _ *mcp.CallToolRequest, in describeInput,
) (*mcp.CallToolResult, any, error) {
	for _, t := range e.sessionTools() {
		if t.Name == in.Name {
			return answer(struct {
				Name         string                    `json:"name"`
				Title        string                    `json:"title,omitempty"`
				Provider     string                    `json:"provider"`
				Description  string                    `json:"description"`
				InputSchema  json.RawMessage           `json:"inputSchema"`
				OutputSchema json.RawMessage           `json:"outputSchema,omitempty"`
				Annotations  *adminapi.ToolAnnotations `json:"annotations,omitempty"`
			}{t.Name, t.Title, t.Provider, t.Description, t.Parameters, t.OutputSchema, t.Annotations})
		}
	}
	return refuse(
		protocol.CodeNotFound,
		fmt.Sprintf("tool %q does not exist in this session; find one with search_tools",
			in.Name),
	)
}

// callNamed is the tool call_tool. Rules, gates and the timeline see the tool that it calls.
func (e *endpoint) callNamed(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in callInput
	if err := json.Unmarshal(r.Params.Arguments, &in); err != nil || in.Name == "" {
		return failed(protocol.CodeInvalidArguments, "call_tool takes name, a text, and arguments, an object"), nil
	}
	return e.call(ctx, r, in.Name, in.Arguments), nil
}

// rank returns the indices of the tools that fit a query best, by BM25 over names and descriptions, best
// first. A name's words count three times.
func rank(query string, tools []adminapi.Tool, limit int) []int {
	documents := make([]map[string]int, len(tools))
	lengths, total := make([]int, len(tools)), 0
	in := map[string]int{} // in how many tools a word is
	for i, t := range tools {
		documents[i] = map[string]int{}
		for _, w := range slices.Concat(words(t.Name), words(t.Name), words(t.Name), words(t.Provider),
			words(t.Description)) {
			documents[i][w]++
			lengths[i]++
		}
		for w := range documents[i] {
			in[w]++
		}
		total += lengths[i]
	}
	terms := words(query)
	slices.Sort(terms)
	terms = slices.Compact(terms)
	type scored struct {
		tool  int
		score float64
	}
	var found []scored
	for i, counts := range documents {
		score := 0.0
		for _, w := range terms {
			if n := float64(counts[w]); n > 0 {
				rarity := math.Log(1 + (float64(len(tools)-in[w])+0.5)/(float64(in[w])+0.5))
				length := 1 - bm25B + bm25B*float64(lengths[i]*len(tools))/float64(total)
				score += rarity * n * (bm25K + 1) / (n + bm25K*length)
			}
		}
		if score > 0 {
			found = append(found, scored{i, score})
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	best := make([]int, min(len(found), limit))
	for i := range best {
		best[i] = found[i].tool
	}
	return best
}

// words are the words of a text in lower case, without a plural's s. Names such as read_file and readFile
// are several words.
func words(text string) []string {
	var b strings.Builder
	var last rune
	for _, r := range text {
		if unicode.IsUpper(r) && unicode.IsLower(last) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
		last = r
	}
	list := strings.FieldsFunc(b.String(), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for i, w := range list {
		if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
			list[i] = w[:len(w)-1]
		}
	}
	return list
}
