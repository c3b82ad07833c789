// Package web fetches web pages for a model: from the public internet only, unless a
// policy allows more, and never more than a bounded amount. It turns pages into
// Markdown and finds the parts that answer a query.
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
	maxBody      = 2 << 20 // bytes of a page that are read
	maxRedirects = 5
	fetchTimeout = 15 * time.Second // for a page
	userAgent    = "Mozilla/5.0 (compatible; tapgw; fetch_web_page)"
)

// Fetcher fetches pages. The zero value fetches from public servers only, without a
// proxy. It may be used by several goroutines.
type Fetcher struct {
	// Private decides about a server whose address is not public. addr is not valid if
	// only the proxy knows the address. A nil error allows it. Without Private, such
	// servers are refused.
	Private func(ctx context.Context, host string, addr netip.AddrPort) error
	// Proxy returns the proxy for a request. nil: no request uses one.
	Proxy func(*http.Request) (*url.URL, error)

	limit time.Duration // 0: fetchTimeout
	// nil: the system's resolver
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Page is a fetched page.
type Page struct {
	URL  string // after redirects
	Type string // media type, without parameters
	Body []byte // in UTF-8
	Cut  bool   // Body is only the beginning
}

// Fetch fetches a page, within 15 seconds and with at most 5 redirects. Each address
// that it connects to must be public or allowed. The error is one line for the model.
func (f Fetcher) Fetch(ctx context.Context, address string) (Page, error) {
	limit := f.limit
	if limit == 0 {
		limit = fetchTimeout
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
	u, err := parsePage(address)
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
			_, err := parsePage(r.URL.String())
			return err
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return Page{}, fmt.Errorf("%q is no URL", address)
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept",
		"text/markdown, text/html;q=0.9, text/plain;q=0.8, application/json;q=0.8, */*;q=0.1")
	req.Header.Set("Accept-Language", "en, *;q=0.5")
	resp, err := client.Do(req)
	if err != nil {
		return Page{}, fetchError(u, err)
	}
	defer resp.Body.Close()
	final := resp.Request.URL
	if resp.StatusCode != http.StatusOK {
		return Page{}, fmt.Errorf("%s answers %s", final.Redacted(), resp.Status)
	}
	p := Page{URL: final.String(), Type: mediaType(resp.Header.Get("Content-Type"))}
	if !isText(p.Type) {
		return Page{}, fmt.Errorf("%s is %s, not text", final.Redacted(), p.Type)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return Page{}, fetchError(final, err)
	}
	if p.Cut = len(body) > maxBody; p.Cut {
		body = body[:maxBody]
	}
	p.Body = toUTF8(body, p.Cut)
	return p, nil
}

// roundTripper sends each request, also after a redirect: to an address that the guard allows, or
// to the proxy.
type roundTripper struct{ f Fetcher }

// RoundTrip is http.RoundTripper's.
func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	u, err := parsePage(req.URL.String())
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.URL, req.Host = u, u.Host
	transport := &http.Transport{
		DialContext: t.f.dial, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: 256 << 10,
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

// fetchError describes in one line why a page could not be fetched.
func fetchError(u *url.URL, err error) error {
	if p, ok := errors.AsType[*privateError](err); ok {
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

func isText(t string) bool {
	switch t {
	case "application/json", "application/xml", "application/javascript", "application/yaml",
		"application/toml":
		return true
	}
	return strings.HasPrefix(t, "text/") || strings.HasSuffix(t, "+json") ||
		strings.HasSuffix(t, "+xml")
}

// toUTF8 converts a text to UTF-8. A text that is not UTF-8 counts as Latin-1, like most
// old pages. isCut allows the last character to be incomplete.
func toUTF8(body []byte, isCut bool) []byte {
	whole := body
	for i := 0; isCut && i < utf8.UTFMax && len(whole) > 0 &&
		!utf8.Valid(whole[max(0, len(whole)-utf8.UTFMax):]); i++ {
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
