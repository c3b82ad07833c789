package providers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/internal/statedir"
)

const (
	envURL   = "TAP_GATEWAY_URL"
	envToken = "TAP_PROVIDER_TOKEN"
)

// endpoint is a gateway and the token for it.
type endpoint struct {
	url   string
	token string
	// gateway identifies the gateway by the text of its files, so that a later one at the same
	// address is another.
	gateway string
	// fixedToken: the token comes from [Options] or from pairing, and no other is ever tried.
	fixedToken bool
	// fromUser: neither the URL nor the token comes from the gateway's files, so a tunnel to the
	// gateway is the user's.
	fromUser bool
}

// paired reports whether the token is the result of pairing.
func (e endpoint) paired() bool { return strings.HasPrefix(e.token, pairedPrefix) }

// endpoints returns the gateways to try: the one of the pairing, or those of the options,
// environment and files.
func (p *Provider) endpoints() ([]endpoint, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paired != (endpoint{}) {
		return []endpoint{p.paired}, nil
	}
	return endpoints(p.opts)
}

// stateDir is the directory of the gateway's token files.
func stateDir() (string, error) {
	home, err := statedir.Home()
	if err != nil {
		return "", fmt.Errorf("finding the gateway's files: %w", err)
	}
	return statedir.Of(home), nil
}

// gatewayURL returns the gateway's URL as of now, and the text of gateway.json, which identifies
// the gateway. Without a URL from the user and without that file there is no gateway: any program
// may listen on the usual port.
func gatewayURL(o Options) (url string, info []byte, err error) {
	if err := checkURL(envURL, os.Getenv(envURL)); err != nil && o.URL == "" {
		return "", nil, fatalError{err}
	}
	dir, err := stateDir()
	if err == nil {
		info, err = os.ReadFile(filepath.Join(dir, statedir.InfoFile))
	}
	// Not statedir.Info: a gateway of another version may write the other members in another form.
	var file struct {
		URL string `json:"url"`
	}
	if json.Unmarshal(info, &file) != nil || checkURL("url", file.URL) != nil {
		file.URL = "" // the file is not written completely
	}
	if url = cmp.Or(o.URL, os.Getenv(envURL), file.URL); url != "" {
		return url, info, nil
	}
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("no gateway has written %s yet; start one, or set %s",
			filepath.Join(dir, statedir.InfoFile), envURL)
	}
	return "", nil, err
}

// endpoints returns the gateways and tokens to try as of now. There are two if the environment has
// a token but no URL: the environment of a process never changes, so its token may be one of an
// earlier gateway. A process with both in its environment was started by that gateway and connects
// only to it.
func endpoints(o Options) ([]endpoint, error) {
	url, info, err := gatewayURL(o)
	if err != nil {
		return nil, err
	}
	file, env := o.TokenFile, ""
	if file == "" {
		env = os.Getenv(envToken)
		var dir string
		if dir, err = stateDir(); err == nil {
			file = filepath.Join(dir, statedir.ProviderTokenFile)
		}
	}
	var fileToken string
	if file != "" {
		text, _ := os.ReadFile(file) //nolint:gosec // the program names the file
		fileToken = strings.TrimSpace(string(text))
	}

	urlNamed := o.URL != "" || os.Getenv(envURL) != ""
	e := endpoint{url: url, gateway: string(info) + fileToken, fixedToken: o.Token != ""}
	tokens := []string{cmp.Or(o.Token, env, fileToken)}
	if !e.fixedToken && os.Getenv(envURL) == "" {
		tokens = append(tokens, fileToken)
	}
	var found []endpoint
	for i, token := range tokens {
		e.token, e.fromUser = token, urlNamed && i == 0 && cmp.Or(o.Token, env) != ""
		if token != "" && !slices.Contains(tokens[:i], token) {
			found = append(found, e)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	if err == nil {
		err = fmt.Errorf("no token: no gateway has written %s yet; start one, or set %s", file,
			envToken)
	}
	return nil, err
}

// checkURL returns an error for an invalid URL of a gateway. "" is valid.
func checkURL(name, s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // the rest would repeat the URL
		}
		return fmt.Errorf("%s: %q is not a URL: %w", name, s, err)
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return fmt.Errorf("%s: %q must begin with ws:// or wss://", name, s)
	}
	if u.Host == "" {
		return fmt.Errorf("%s: %q names no host", name, s)
	}
	return nil
}
