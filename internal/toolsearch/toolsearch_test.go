package toolsearch

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
)

func TestRank(t *testing.T) {
	tools := []adminapi.Tool{
		{Name: "read_file", Description: "Read a file of the workspace"},
		{Name: "createIssue", Description: "Make a ticket"},
		{Name: "list_issues", Description: "Tickets that are open"},
		{Name: "weather", Description: "The weather of a city. It reads no file."},
	}
	for query, want := range map[string][]int{
		"issue":           {1, 2},
		"read files":      {0, 3},
		"WEATHER in city": {3},
		"nothing such":    {},
		"":                {},
	} {
		if got := rank(query, tools, 8); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", query, got, want)
		}
	}
	if got := rank("issue", tools, 1); len(got) != 1 {
		t.Errorf("limit 1: got %v, want one", got)
	}
}

func TestFind(t *testing.T) {
	tools := []adminapi.Tool{{Name: "read_file", Provider: "fs", Description: "Read a file"},
		{Name: "other"}}
	found, err := Find("read", 0, tools)
	got, _ := json.Marshal(found)
	want := `{"tools":[{"name":"read_file","provider":"fs","description":"Read a file"}],"of":2}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	for _, limit := range []int{-1, maxFound + 1} {
		if _, err := Find("read", limit, tools); err == nil ||
			!strings.Contains(err.Error(), "limit: ") {
			t.Errorf("limit %d: got %v, want an error that names limit", limit, err)
		}
	}
	if _, err := Detail("gone", tools); err == nil || !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("a tool that is not there: got %v, want an error that names it", err)
	}
}

func TestCalled(t *testing.T) {
	for args, want := range map[string]string{
		`{"name":"a","arguments":{"b":1}}`: `a {"b":1}`,
		`{"name":"a"}`:                     "a ",
		`{"name":"a","arguments":null}`:    "a null",
		`{"name":7}`:                       "",
		`{}`:                               "",
		`[]`:                               "",
	} {
		name, own, ok := Called(json.RawMessage(args))
		if got := name + " " + string(own); ok != (want != "") || ok && got != want {
			t.Errorf("%s: got %q, %v, want %q", args, got, ok, want)
		}
	}
}
