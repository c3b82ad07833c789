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
	maxAnswer = 4000             // characters of an answer
	patience  = 10 * time.Second // for all that one question asks of Context7
)

// Docs answers the questions of the tools resolve_library_id and
// get_library_docs. The zero value is ready: bundled libraries, Context7 at its
// public address. Fields are set before the first call; methods may be called
// concurrently.
type Docs struct {
	// UserDir is a directory with further libraries, see [Load]; it is read anew
	// for each question. Empty: none.
	UserDir string
	// BaseURL is where Context7 is. Empty: https://context7.com.
	BaseURL string
	// APIKey is sent to Context7 as bearer. Empty: CONTEXT7_API_KEY of the
	// environment, and where that is empty too, none.
	APIKey string
	// HTTP asks Context7. Nil: [http.DefaultClient].
	HTTP *http.Client
}

// ResolveID says which library ID to give to Get: of the libraries on hand that
// go by the name, else of those that Context7 finds, which ranks them by the
// query where there is one. The error is one line and names the bundled IDs.
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
		return answer("On hand, always available:", entries), nil
	}
	entries, err := d.searchLibraries(ctx, libraryName, query)
	switch {
	case err == nil:
		return answer("Found by Context7:", entries), nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	default:
		return "", notFound("libraryName", libraryName, catalog, err, faults)
	}
}

// Get returns documentation of a library for a query, at most 4,000 characters:
// the best sections of a library on hand, else what Context7 has. Where Context7
// has nothing either, or can't be reached, it is the overview of the library on
// hand, or an error of one line that names the bundled IDs.
func (d *Docs) Get(ctx context.Context, libraryID, query string) (string, error) {
	if strings.TrimSpace(libraryID) == "" {
		return "", errors.New("libraryId: empty: give an ID that resolve_library_id returned, for example playwright")
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
		head := fmt.Sprintf("Nothing on %q in %s; asking Context7: %v. What there is:\n\n", clip(query, 80), lib.ID,
			err)
		return head + lib.Overview(maxAnswer-utf8.RuneCountInString(head)), nil
	default:
		return "", notFound("libraryId", libraryID, catalog, err, faults)
	}
}

// entry is one library of an answer.
type entry struct{ id, title, description string }

// answer lists libraries, and says what to do with them.
func answer(head string, entries []entry) string {
	var b strings.Builder
	b.WriteString(head + "\n")
	for _, e := range entries {
		fmt.Fprintf(&b, "- %s: %s\n", e.id, clip(strings.Trim(e.title+". "+e.description, ". "), 300))
	}
	fmt.Fprintf(&b, "Next: get_library_docs with libraryId %q", entries[0].id)
	if len(entries) > 1 {
		b.WriteString(", or another of these,")
	}
	b.WriteString(" and a query.")
	return b.String()
}

// notFound is the error for a library that nobody has. Libraries of the user
// that can't be read are named: it may be one of them.
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
