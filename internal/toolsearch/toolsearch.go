// Package toolsearch finds tools among too many to list. It has the descriptions, parameters and
// answers of the tools search_tools, describe_tool and call_tool, for every place that offers them.
package toolsearch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"tapgw/internal/adminapi"
)

// Names of the tools that stand for too many others.
const (
	Search   = "search_tools"
	Describe = "describe_tool"
	Call     = "call_tool"
)

// The descriptions of the tools.
const (
	AboutSearch = "Find tools of the session by what they do. It has too many to list. " +
		"describe_tool gives a tool's arguments, call_tool calls it."
	AboutDescribe = "Get a tool's description and the JSON Schema of its arguments."
	AboutCall     = "Call a tool of the session by its name."
)

// JSON Schemas of the tools' parameters.
const (
	SearchSchema = `{"type":"object","required":["query"],"additionalProperties":false,"properties":{` +
		`"query":{"type":"string","description":"what the tool should do, in a few words; words of its name count most"},` +
		`"limit":{"type":"integer","description":"how many tools, at most 20 (default 8)"}}}`
	DescribeSchema = `{"type":"object","required":["name"],"additionalProperties":false,"properties":{` +
		`"name":{"type":"string","description":"the tool's name, from search_tools"}}}`
	CallSchema = `{"type":"object","required":["name"],"additionalProperties":false,"properties":{` +
		`"name":{"type":"string","description":"the tool's name, from search_tools"},` +
		`"arguments":{"type":"object","description":"the tool's arguments, as describe_tool gives their schema"}}}`
)

const (
	maxFound   = 20 // tools in the answer of a search
	foundByDef = 8
	// The usual parameters of BM25.
	bm25K = 1.2
	bm25B = 0.75
)

// Found is the answer of search_tools: the tools that fit best, best first.
type Found struct {
	Tools []FoundTool `json:"tools"`
	Of    int         `json:"of"` // all tools
}

// FoundTool is a tool in the answer of a search.
type FoundTool struct {
	Name        string `json:"name"`
	Provider    string `json:"provider"`
	Description string `json:"description"`
}

// Find answers search_tools. A limit of 0 is the default; the error says which limits there are.
func Find(query string, limit int, tools []adminapi.Tool) (Found, error) {
	if limit < 0 || limit > maxFound {
		return Found{}, fmt.Errorf("limit: must be from 1 to %d", maxFound)
	}
	found := Found{Tools: []FoundTool{}, Of: len(tools)}
	for _, i := range rank(query, tools, cmp.Or(limit, foundByDef)) {
		found.Tools = append(found.Tools, FoundTool{tools[i].Name, tools[i].Provider,
			tools[i].Description})
	}
	return found, nil
}

// Details is the answer of describe_tool.
type Details struct {
	Name         string                    `json:"name"`
	Title        string                    `json:"title,omitempty"`
	Provider     string                    `json:"provider"`
	Description  string                    `json:"description"`
	InputSchema  json.RawMessage           `json:"inputSchema"`
	OutputSchema json.RawMessage           `json:"outputSchema,omitempty"`
	Annotations  *adminapi.ToolAnnotations `json:"annotations,omitempty"`
}

// Detail answers describe_tool. The error says how to find a tool.
func Detail(name string, tools []adminapi.Tool) (Details, error) {
	i := slices.IndexFunc(tools, func(t adminapi.Tool) bool { return t.Name == name })
	if i < 0 {
		return Details{},
			fmt.Errorf("tool %q does not exist in this session; find one with search_tools", name)
	}
	t := tools[i]
	return Details{t.Name, t.Title, t.Provider, t.Description, t.Parameters, t.OutputSchema,
		t.Annotations}, nil
}

// WrongCall is the answer of call_tool to arguments that name no tool.
const WrongCall = "call_tool takes name, a text, and arguments, an object"

// Called returns the tool that the arguments of call_tool name, with its own arguments, which may
// be nil. ok is false if they name no tool.
func Called(args json.RawMessage) (name string, own json.RawMessage, ok bool) {
	var in struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal(args, &in) != nil || in.Name == "" {
		return "", nil, false
	}
	return in.Name, in.Arguments, true
}

// rank returns the indices of the tools that fit a query best, by BM25 over names and descriptions,
// best first. A name's words count three times.
func rank(query string, tools []adminapi.Tool, limit int) []int {
	documents := make([]map[string]int, len(tools))
	lengths, total := make([]int, len(tools)), 0
	in := map[string]int{} // in how many tools a word is
	for i, t := range tools {
		documents[i] = map[string]int{}
		for _, w := range slices.Concat(words(t.Name), words(t.Name), words(t.Name),
			words(t.Provider),
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

// words are the words of a text in lower case, without a plural's s. Names such as read_file and
// readFile are several words.
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
	list := strings.FieldsFunc(b.String(), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	for i, w := range list {
		if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
			list[i] = w[:len(w)-1]
		}
	}
	return list
}
