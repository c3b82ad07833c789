package library_docs //nolint:revive,staticcheck // see doc.go

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"unicode/utf8"
)

const (
	context7URL  = "https://context7.com"
	maxBody      = 2 << 20 // bytes of an answer that are read
	maxLibraries = 8       // libraries that a search returns
	maxParam     = 500     // characters of a parameter
)

// searchLibraries asks Context7 for the libraries with a name. It returns at least one,
// or an error.
func (d *Docs) searchLibraries(ctx context.Context, name, query string) ([]entry, error) {
	ctx, cancel := context.WithTimeout(ctx, context7Timeout)
	defer cancel()
	body, err := d.request(ctx, "/api/v2/libs/search", url.Values{
		"libraryName": {clip(name, maxParam)},
		"query":       {clip(cmp.Or(strings.TrimSpace(query), name), maxParam)},
	})
	if err != nil {
		return nil, err
	}
	var found struct {
		Results []struct {
			ID          string `json:"id"`
			Title       string `json:"title"`
			Description string `json:"description"`
		} `json:"results"`
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return nil, fmt.Errorf("its list of libraries can't be read: %w", err)
	}
	var entries []entry
	for _, r := range found.Results {
		if strings.HasPrefix(r.ID, "/") && !strings.ContainsAny(r.ID, " \t\r\n") &&
			len(entries) < maxLibraries {
			entries = append(entries, entry{clip(r.ID, 100), r.Title, r.Description})
		}
	}
	if len(entries) == 0 {
		return nil, errors.New("it knows no such library")
	}
	return entries, nil
}

// fetch asks Context7 for documentation. It first looks up the ID of a library that is
// given by a plain name.
func (d *Docs) fetch(ctx context.Context, libraryID, query string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, context7Timeout)
	defer cancel()
	if !strings.Contains(libraryID, "/") {
		entries, err := d.searchLibraries(ctx, libraryID, query)
		if err != nil {
			return "", err
		}
		libraryID = entries[0].id
	}
	libraryID = "/" + strings.Trim(libraryID, "/ ")
	body, err := d.request(ctx, "/api/v2/context", url.Values{
		"libraryId": {clip(libraryID, maxParam)},
		"query":     {clip(query, maxParam)},
	})
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(body))
	if !utf8.ValidString(text) {
		return "", errors.New("its answer is no text")
	}
	switch text {
	case "", "No content available", "No context data available":
		return "", fmt.Errorf("it has nothing on this in %s", libraryID)
	}
	head := "From Context7, " + libraryID + ":\n\n"
	return head + cut(text, maxAnswer-utf8.RuneCountInString(head)), nil
}

// request sends one request and returns the body of a successful answer. An error is one
// line that calls Context7 "it" and contains neither address nor key.
func (d *Docs) request(ctx context.Context, path string, params url.Values) ([]byte, error) {
	base := strings.TrimRight(cmp.Or(d.BaseURL, context7URL), "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path+"?"+params.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("its address is not one: %w", err)
	}
	if key := cmp.Or(d.APIKey, os.Getenv("CONTEXT7_API_KEY")); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := cmp.Or(d.HTTP, http.DefaultClient).Do(req)
	if err != nil {
		return nil, connectionError(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, connectionError(ctx, err)
	case len(body) > maxBody:
		return nil, fmt.Errorf("its answer is larger than %d MiB", maxBody>>20)
	case resp.StatusCode != http.StatusOK:
		return nil, statusError(resp.StatusCode, body)
	}
	// A web page comes from a proxy or asks to sign in; it is no documentation.
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/html" {
		return nil, errors.New("a web page came instead of an answer")
	}
	return body, nil
}

func connectionError(ctx context.Context, err error) error {
	if urlErr := (*url.Error)(nil); errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", context7Timeout)
	}
	return fmt.Errorf("it can't be reached: %w", err)
}

// statusError makes an error of an answer with a status other than 200, with Context7's
// own message if it has one.
func statusError(status int, body []byte) error {
	var answer struct {
		Message     string `json:"message"`
		RedirectURL string `json:"redirectUrl"`
	}
	_ = json.Unmarshal(body, &answer) // other bodies have no message
	switch {
	case answer.RedirectURL != "":
		return fmt.Errorf("it has the library under another ID: %s", clip(answer.RedirectURL, 100))
	case answer.Message != "":
		return fmt.Errorf("it answered %d: %s", status, clip(answer.Message, 200))
	default:
		return fmt.Errorf("it answered %d %s", status, http.StatusText(status))
	}
}
