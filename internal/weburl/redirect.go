package weburl

import (
	"fmt"
	"net/http"
)

const maxRedirects = 5

// StayOnHost returns a CheckRedirect for http.Client that refuses redirects to another host or
// scheme than a provider file names, because its headers may have secrets. Its errors call the
// server by the given words.
func StayOnHost(server string) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		first := via[0].URL
		switch {
		case len(via) > maxRedirects:
			return fmt.Errorf("%s redirects more than %d times", server, maxRedirects)
		case req.URL.Scheme != first.Scheme || req.URL.Host != first.Host:
			return fmt.Errorf("%s redirects to %s://%s, which the provider's file does not name",
				server, req.URL.Scheme, req.URL.Host)
		}
		return nil
	}
}
