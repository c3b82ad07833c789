package builtin

import (
	"context"

	"tapgw/tools"
)

type getLibraryDocsIn struct {
	LibraryID string `json:"libraryId" jsonschema:"The library's ID, from resolve_library_id."`
	Query     string `json:"query" jsonschema:"What to look up, in a few words, such as: wait for an element."`
}

var _ = add(&tools.Tool{
	Name: "get_library_docs",
	Description: "Get documentation of a library: the parts that fit a query, up to 4,000 " +
		"characters. Call " +
		"resolve_library_id first to find the library's ID. " +
		"What is not on hand is looked up at Context7.",
	Kind: tools.Web,
}, getLibraryDocs)

func getLibraryDocs(ctx context.Context, env *access, in getLibraryDocsIn) (tools.Result, error) {
	answer, err := env.libraries().Get(ctx, in.LibraryID, in.Query)
	return textResult(answer), err
}
