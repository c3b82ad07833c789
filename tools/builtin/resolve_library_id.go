package builtin

import (
	"context"

	"tapgw/library_docs"
	"tapgw/tools"
)

type resolveLibraryIDIn struct {
	LibraryName string `json:"libraryName" jsonschema:"The library, as people call it, such as playwright or junit."`
	Query       string `json:"query,omitzero" jsonschema:"What you want to know: it helps to choose between libraries of similar names."`
}

var _ = add(&tools.Tool{
	Name: "resolve_library_id",
	Description: "Find the ID of a library for get_library_docs. Playwright, Selenium, Cucumber, " +
		"Gherkin, Java " +
		"and Mermaid are on hand, and what the user has added; " +
		"others are looked up at Context7.",
	Kind: tools.Web,
}, resolveLibraryID)

func resolveLibraryID(
	ctx context.Context, env *access, in resolveLibraryIDIn,
) (tools.Result, error) {
	answer, err := env.libraries().ResolveID(ctx, in.LibraryName, in.Query)
	return textResult(answer), err
}

// libraries returns the bundled documentation, the user's own and Context7's.
func (e *access) libraries() *library_docs.Docs {
	return &library_docs.Docs{UserDir: e.LibraryDir()}
}
