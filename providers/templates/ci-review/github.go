package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	maxBody     = 16 << 20 // of an answer, in bytes
	maxLog      = 256 << 20
	keptLog     = 256 << 10 // of a log: its end
	maxPages    = 10
	maxCached   = 100
	askTimeout  = 20 * time.Second
	firstWait   = time.Minute // after a limit that names no time, as GitHub asks for
	longestWait = 15 * time.Minute
	tokenLife   = 10 * time.Minute // of a token of gh
)

// client asks GitHub's REST API. It repeats questions with their ETag, because an answer 304 costs
// nothing, and asks nothing while GitHub says so. It is used by one goroutine at a time.
type client struct {
	base     *url.URL
	tokenEnv string // the variable with the token; if it is empty, gh is asked
	http     *http.Client
	now      func() time.Time

	cache    map[string]cached
	token    string
	tokenEnd time.Time // zero: for good
	blocked  time.Time // no request before
	failures int       // in a row
}

// cached is an answer with its ETag.
type cached struct {
	etag, next string
	body       []byte
}

// statusError is an answer that is no success.
type statusError struct {
	status  int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("GitHub answers %d %s", e.status, clean(e.message))
}

// newClient makes a client of the API at a URL. Its token goes nowhere else.
func newClient(base, tokenEnv string) (*client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("-api %q is not the URL of an API, such as https://api.github.com",
			base)
	}
	if u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "127.0.0.1" &&
		u.Hostname() != "localhost") {
		return nil, fmt.Errorf("-api %q must be https: the token goes there", base)
	}
	c := &client{base: u, tokenEnv: tokenEnv, now: time.Now, cache: map[string]cached{}}
	c.http = &http.Client{Timeout: askTimeout,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 {
				return errors.New("too many redirects")
			}
			if r.URL.Scheme != u.Scheme && r.URL.Scheme != "https" {
				return errors.New("a redirect leaves https")
			}
			if r.URL.Host != u.Host {
				r.Header.Del("Authorization")
			}
			return nil
		}}
	return c, nil
}

// list reads all pages of an answer, and gives each to add.
func (c *client) list(ctx context.Context, path string, add func(body []byte) error) error {
	next := c.base.JoinPath("/").String() + strings.TrimPrefix(path, "/")
	for range maxPages {
		page, err := c.get(ctx, next)
		if err != nil {
			return err
		}
		if err := add(page.body); err != nil {
			return fmt.Errorf("reading GitHub's answer to %s: %w", path, err)
		}
		if page.next == "" {
			return nil
		}
		u, err := url.Parse(page.next)
		if err != nil || u.Scheme != c.base.Scheme || u.Host != c.base.Host {
			return fmt.Errorf("the next page of %s is on another server", path)
		}
		next = page.next
	}
	return nil
}

// get asks one URL of the API.
func (c *client) get(ctx context.Context, target string) (cached, error) {
	old, has := c.cache[target]
	resp, err := c.ask(ctx, target, old.etag)
	if err != nil {
		return cached{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNotModified && has {
		c.failures = 0
		return old, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("GitHub's answer is over %d bytes", maxBody)
	}
	if err != nil {
		return cached{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return cached{}, c.fail(resp, body)
	}
	c.failures = 0
	got := cached{etag: resp.Header.Get("ETag"), next: nextPage(resp.Header), body: body}
	if len(c.cache) >= maxCached {
		clear(c.cache)
	}
	c.cache[target] = got
	return got, nil
}

// ask sends a request. The caller closes the body.
func (c *client) ask(ctx context.Context, target, etag string) (*http.Response, error) {
	if wait := c.blocked.Sub(c.now()); wait > 0 {
		return nil, fmt.Errorf("GitHub is not asked again before %s",
			c.blocked.Format(time.TimeOnly))
	}
	token, err := c.findToken(ctx)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	req.Header.Set("User-Agent", "tapgw-ci-review")
	req.Header.Set("Authorization", "Bearer "+token)
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	resp, err := c.http.Do(req)
	if err == nil {
		return resp, nil
	}
	if ctx.Err() == nil {
		c.backOff(firstWait / 12)
	}
	// The URL of a log is a secret for a while, so the error goes without its URL.
	if e, is := errors.AsType[*url.Error](err); is {
		err = e.Err
	}
	return nil, fmt.Errorf("asking GitHub: %w", err)
}

// fail makes the error of an answer, and remembers how long GitHub wants no more questions.
func (c *client) fail(resp *http.Response, body []byte) error {
	var said struct{ Message string }
	_ = json.Unmarshal(body, &said)
	h := resp.Header
	limited := resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusForbidden &&
			(h.Get("Retry-After") != "" || h.Get("X-RateLimit-Remaining") == "0" ||
				strings.Contains(strings.ToLower(said.Message), "rate limit"))
	switch {
	case limited:
		c.limit(h)
	case resp.StatusCode == http.StatusUnauthorized:
		c.token, c.tokenEnd = "", time.Time{}
		c.backOff(firstWait)
	case resp.StatusCode >= http.StatusInternalServerError:
		c.backOff(firstWait / 12)
	}
	return &statusError{resp.StatusCode, said.Message}
}

// limit stops requests for as long as a rate limit says.
func (c *client) limit(h http.Header) {
	if seconds, err := strconv.Atoi(h.Get("Retry-After")); err == nil && seconds >= 0 {
		c.blocked = c.now().Add(time.Duration(min(seconds, 86_400)) * time.Second)
		return
	}
	reset, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	if h.Get("X-RateLimit-Remaining") == "0" && err == nil {
		c.blocked = time.Unix(reset, 0).Add(time.Second)
		return
	}
	c.backOff(firstWait)
}

// backOff waits longer after each failure in a row.
func (c *client) backOff(first time.Duration) {
	c.blocked = c.now().Add(min(first<<min(c.failures, 10), longestWait))
	c.failures++
}

// findToken reads the variable, or asks gh, which has the token of the user's own sign-in.
func (c *client) findToken(ctx context.Context) (string, error) {
	if c.token != "" && (c.tokenEnd.IsZero() || c.now().Before(c.tokenEnd)) {
		return c.token, nil
	}
	c.token, c.tokenEnd = strings.TrimSpace(os.Getenv(c.tokenEnv)), time.Time{}
	if c.token != "" {
		return c.token, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "gh", "auth", "token", "--hostname", c.webHost()).Output()
	if err != nil || len(out) == 0 {
		return "", fmt.Errorf(
			"there is no token for GitHub: set the variable %s in the provider file, or run "+
				"gh auth login",
			c.tokenEnv,
		)
	}
	c.token, c.tokenEnd = strings.TrimSpace(string(out)), c.now().Add(tokenLife)
	return c.token, nil
}

// webHost is the host whose repositories the API has.
func (c *client) webHost() string {
	if c.base.Hostname() == "api.github.com" {
		return "github.com"
	}
	return c.base.Hostname()
}

var nextLink = regexp.MustCompile(`<([^>]*)>\s*;[^,]*\brel="next"`)

// nextPage returns the URL of the next page of an answer; "" if it is the last one.
func nextPage(h http.Header) string {
	if m := nextLink.FindStringSubmatch(strings.Join(h.Values("Link"), ", ")); m != nil {
		return m[1]
	}
	return ""
}

// tail returns the end of a text that may be long. The text is plain, and not of the API: GitHub
// sends the reader to another server.
func (c *client) tail(ctx context.Context, path string) (string, error) {
	resp, err := c.ask(ctx, c.base.JoinPath(path).String(), "")
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return "", c.fail(resp, body)
	}
	return readTail(io.LimitReader(resp.Body, maxLog))
}

// readTail keeps the last bytes of a text, from the beginning of a line.
func readTail(r io.Reader) (string, error) {
	var kept []byte
	part := make([]byte, 64<<10)
	cut := false
	for {
		n, err := r.Read(part)
		kept = append(kept, part[:n]...)
		if len(kept) > 2*keptLog {
			kept, cut = append(kept[:0], kept[len(kept)-keptLog:]...), true
		}
		switch {
		case errors.Is(err, io.EOF):
			text := string(kept[max(0, len(kept)-keptLog):])
			if cut || len(kept) > keptLog {
				if _, rest, found := strings.Cut(text, "\n"); found {
					text = rest
				}
			}
			return text, nil
		case err != nil:
			return "", errors.New("reading the log: the connection ended early")
		}
	}
}
