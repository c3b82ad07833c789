package library_docs //nolint:revive,staticcheck // see doc.go

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxAnswer       = 4000             // characters of an answer
	context7Timeout = 10 * time.Second // for all requests of one question
)

// Docs answers the questions of the tools resolve_library_id and get_library_docs. The
// zero value uses the bundled libraries and the public Context7. Set the fields before
// the first call; the methods may be called by several goroutines.
type Docs struct {
	// UserDir is a directory with further libraries, see [Load]. Each question reads it again. It
	// may be "".
	UserDir string
	// BaseURL is the address of Context7. "": https://context7.com.
	BaseURL string
	// APIKey is the bearer token for Context7. If it is "", $CONTEXT7_API_KEY is used, which may be
	// unset.
	APIKey string
	// HTTP sends the requests to Context7. nil: [http.DefaultClient].
	HTTP *http.Client
}

// ResolveID lists the IDs of libraries with a name, for [Docs.Get]: bundled ones and the
// user's, or else those that Context7 finds and ranks by the query. The error is one
// line and names the bundled IDs.
func (d *Docs) ResolveID(ctx context.Context, libraryName, query string) (string, error) {
	if strings.TrimSpace(libraryName) == "" {
		return "", errors.New("libraryName: empty: name the library, for example playwright")
	}
	catalog, faults := Load(d.UserDir)
	if found := catalog.Resolve(libraryName); len(found) > 0 {
		entries := make([]entry, len(found))
		for i, lib := range found {
			entries[i] = entry{lib.ID, lib.Title, lib.Description}
		}
		return formatEntries("On hand, always available:", entries), nil
	}
	entries, err := d.searchLibraries(ctx, libraryName, query)
	switch {
	case err == nil:
		return formatEntries("Found by Context7:", entries), nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	default:
		return "", notFound("libraryName", libraryName, catalog, err, faults)
	}
}

// Get returns documentation of a library for a query, at most 4,000 characters: the best
// sections of a bundled or user's library, or else Context7's answer. If Context7 fails
// too, it returns the overview of the library, or for an unknown library an error of
// one line that names the bundled IDs.
func (d *Docs) Get(ctx context.Context, libraryID, query string) (string, error) {
	if strings.TrimSpace(libraryID) == "" {
		return "",
			errors.New(
				"libraryId: empty: give an ID that resolve_library_id returned, for " +
					"example playwright")
	}
	query = strings.TrimSpace(query)
	catalog, faults := Load(d.UserDir)
	var lib *Library
	if found := catalog.Resolve(libraryID); len(found) > 0 {
		lib = &found[0]
		if text := lib.Search(query, maxAnswer); text != "" {
			return text, nil
		}
		if query == "" {
			return lib.Overview(maxAnswer), nil
		}
		libraryID = lib.ID
	}
	if query == "" {
		return "", errors.New("query: empty: say what to look up")
	}
	text, err := d.fetch(ctx, libraryID, query)
	switch {
	case err == nil:
		return text, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case lib != nil:
		head := fmt.Sprintf("Nothing on %q in %s; asking Context7: %v. What there is:\n\n",
			clip(query, 80), lib.ID, err)
		return head + lib.Overview(maxAnswer-utf8.RuneCountInString(head)), nil
	default:
		return "", notFound("libraryId", libraryID, catalog, err, faults)
	}
}

// entry is a library in a list for the model.
type entry struct{ id, title, description string }

// formatEntries lists libraries for the model, with the next step.
func formatEntries(head string, entries []entry) string {
	var b strings.Builder
	b.WriteString(head + "\n")
	for _, e := range entries {
		fmt.Fprintf(&b, "- %s: %s\n", e.id, clip(strings.Trim(e.title+". "+e.description, ". "),
			300))
	}
	fmt.Fprintf(&b, "Next: get_library_docs with libraryId %q", entries[0].id)
	if len(entries) > 1 {
		b.WriteString(", or another of these,")
	}
	b.WriteString(" and a query.")
	return b.String()
}

// notFound is the error about an unknown library. It includes faults, because a library of
// the user that can't be read may be the one.
func notFound(field, name string, catalog Catalog, err, faults error) error {
	msg := fmt.Sprintf("%s %q: on hand are %s; asking Context7: %v", field, clip(name, 80),
		strings.Join(catalog.IDs(), ", "), err)
	if faults != nil {
		msg += "; " + strings.ReplaceAll(faults.Error(), "\n", "; ")
	}
	return errors.New(msg)
}

// clip returns text on one line, of at most n characters.
func clip(text string, n int) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > n {
		return string(r[:n]) + "..."
	}
	return text
}
