// Package web fetches pages for a model: only from the public internet unless a
// policy allows more, never more than a bounded amount, as text of which the parts
// that matter come first.
package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxBody      = 2 << 20
	maxRedirects = 5
	patience     = 15 * time.Second // for a page
	userAgent    = "Mozilla/5.0 (compatible; tapgw; fetch_web_page)"
)

// Fetcher fetches pages.
type Fetcher struct {
	// Private decides about a server whose address is not public, or not known
	// because a proxy looks it up: then addr is not valid. nil error allows. Without
	// it such servers are refused.
	Private func(ctx context.Context, host string, addr netip.AddrPort) error
	// Proxy finds the proxy for a request; nil: there is none.
	Proxy func(*http.Request) (*url.URL, error)

	limit  time.Duration                                                // 0: patience
	lookup func(ctx context.Context, host string) ([]netip.Addr, error) // nil: the system's
}

// Page is what was fetched.
type Page struct {
	URL  string // where it was in the end
	Type string // media type, without parameters
	Body []byte // in UTF-8
	Cut  bool   // there is more of it
}

// Fetch fetches a page. The error is one line for the model.
func (f Fetcher) Fetch(ctx context.Context, address string) (Page, error) {
	limit := f.limit
	if limit == 0 {
		limit = patience
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	page, err := f.fetch(limited, address)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s: nothing came within %v", address, limit)
	}
	return page, err
}

func (f Fetcher) fetch(ctx context.Context, address string) (Page, error) {
	u, err := page(address)
	if err != nil {
		return Page{}, err
	}
	u.Fragment = ""
	client := &http.Client{
		Transport: roundTripper{f},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("it leads through more than %d redirects", maxRedirects)
			}
			_, err := page(r.URL.String())
			return err
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return Page{}, fmt.Errorf("%q is no URL", address)
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", "text/markdown, text/html;q=0.9, text/plain;q=0.8, application/json;q=0.8, */*;q=0.1")
	req.Header.Set("Accept-Language", "en, *;q=0.5")
	resp, err := client.Do(req)
	if err != nil {
		return Page{}, worded(u, err)
	}
	defer resp.Body.Close()
	final := resp.Request.URL
	if resp.StatusCode != http.StatusOK {
		return Page{}, fmt.Errorf("%s answers %s", final.Redacted(), resp.Status)
	}
	p := Page{URL: final.String(), Type: mediaType(resp.Header.Get("Content-Type"))}
	if !textual(p.Type) {
		return Page{}, fmt.Errorf("%s is %s, not text", final.Redacted(), p.Type)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return Page{}, worded(final, err)
	}
	if p.Cut = len(body) > maxBody; p.Cut {
		body = body[:maxBody]
	}
	p.Body = decoded(body, p.Cut)
	return p, nil
}

// roundTripper sends each request, also one of a redirect, the way that is allowed:
// itself, to addresses that the guard allows, or to the proxy.
type roundTripper struct{ f Fetcher }

// RoundTrip is http.RoundTripper's.
func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	u, err := page(req.URL.String())
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.URL, req.Host = u, u.Host
	transport := &http.Transport{
		DialContext: t.f.dial, DisableKeepAlives: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 256 << 10,
	}
	if t.f.Proxy != nil {
		proxy, err := t.f.Proxy(req)
		if err == nil && proxy != nil {
			err = t.f.guardProxied(req.Context(), req.URL)
			transport.Proxy, transport.DialContext = http.ProxyURL(proxy), nil
		}
		if err != nil {
			return nil, err
		}
	}
	return transport.RoundTrip(req)
}

// worded says in one line why there is no page.
func worded(u *url.URL, err error) error {
	if p, ok := errors.AsType[*private](err); ok {
		return p
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("%s: %w", u.Redacted(), err)
}

func mediaType(header string) string {
	if header == "" {
		return "text/html"
	}
	t, _, err := mime.ParseMediaType(header)
	if err != nil {
		t, _, _ = strings.Cut(header, ";")
	}
	return strings.ToLower(strings.TrimSpace(t))
}

func textual(t string) bool {
	switch t {
	case "application/json", "application/xml", "application/javascript", "application/yaml", "application/toml":
		return true
	}
	return strings.HasPrefix(t, "text/") || strings.HasSuffix(t, "+json") || strings.HasSuffix(t, "+xml")
}

// decoded makes UTF-8 of a text: what is not is taken for Latin-1, which the rest
// of the old web mostly is.
func decoded(body []byte, cut bool) []byte {
	whole := body
	for i := 0; cut && i < utf8.UTFMax && len(whole) > 0 && !utf8.Valid(whole[max(0, len(whole)-utf8.UTFMax):]); i++ {
		whole = whole[:len(whole)-1]
	}
	if utf8.Valid(whole) {
		return whole
	}
	text := make([]rune, len(body))
	for i, b := range body {
		text[i] = rune(b)
	}
	return []byte(string(text))
}
