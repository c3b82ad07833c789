package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"tapgw/configs"
	"tapgw/internal/visible"
	"tapgw/internal/weburl"
)

const (
	fetchTime = 30 * time.Second
	// maxBody bounds the answer of a URL, and maxFetchHeaders its headers, in bytes.
	maxBody         = 1 << 20
	maxFetchHeaders = 64 << 10
	maxValidator    = 1 << 10 // bytes of an ETag
	// A URL whose answers fail is asked after firstPause, and then after twice as long each time,
	// but not more often than the file says.
	firstPause   = 2 * time.Second
	longestPause = time.Hour
	// longestPutOff bounds how long a server may ask for patience.
	longestPutOff = 24 * time.Hour
)

// fetcher asks URLs. It keeps no connection between two runs, which are far apart.
var fetcher = sync.OnceValue(func() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	transport.MaxResponseHeaderBytes = maxFetchHeaders
	return &http.Client{Transport: transport, CheckRedirect: weburl.StayOnHost("it")}
})

// putOffError is the failure of a server that says when to ask again.
type putOffError struct {
	error
	wait time.Duration
}

// fetch asks the source's URL. before is its last answer.
func (s *source) fetch(ctx context.Context, a *answer, before seen) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.URL, http.NoBody)
	if err != nil {
		return errors.New("url is no URL")
	}
	headers, err := configs.ExpandHeaders(s.config.Headers)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "tapgw")
	if before.ETag != "" {
		req.Header.Set("If-None-Match", before.ETag)
	}
	if before.Modified != "" {
		req.Header.Set("If-Modified-Since", before.Modified)
	}
	maps.Copy(req.Header, headers)
	resp, err := fetcher().Do(req)
	if err != nil {
		return fetchError(ctx, req, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case resp.StatusCode == http.StatusNotModified && before.Of != "":
		a.isSame = true
	case resp.StatusCode/100 != 2:
		return statusError(req, resp)
	case err != nil:
		return fetchError(ctx, req, err)
	case len(data) > maxBody:
		return fmt.Errorf("%s answered with more than %d MiB", req.URL.Host, maxBody>>20)
	default:
		a.text = string(data)
		a.etag, a.modified = validator(resp, "ETag"), validator(resp, "Last-Modified")
	}
	return nil
}

func validator(resp *http.Response, header string) string {
	if v := resp.Header.Get(header); len(v) <= maxValidator {
		return v
	}
	return ""
}

// fetchError words an error of a request, without the URL, which may contain secrets.
func fetchError(ctx context.Context, req *http.Request, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s did not answer within %s", req.URL.Host, fetchTime)
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	return fmt.Errorf("asking %s: %s", req.URL.Host, visible.Line(err.Error()))
}

// statusError is the failure that an answer's status means.
func statusError(req *http.Request, resp *http.Response) error {
	err := fmt.Errorf("%s answered %d %s", req.URL.Host, resp.StatusCode,
		http.StatusText(resp.StatusCode))
	after := resp.Header.Get("Retry-After")
	if seconds, bad := strconv.ParseUint(after, 10, 31); bad == nil {
		return putOffError{err, time.Duration(seconds) * time.Second}
	}
	if when, bad := http.ParseTime(after); bad == nil {
		return putOffError{err, time.Until(when)}
	}
	return err
}

// ended notes how a run has ended, and when a URL may be asked again.
func (s *source) ended(err error, now time.Time) {
	p := &s.progress
	p.NotBefore = time.Time{}
	if err == nil {
		p.Failure, p.Failures = "", 0
		return
	}
	p.Failure = err.Error()
	p.Failures++
	if s.config.URL == "" {
		return
	}
	pause := min(firstPause<<min(p.Failures-1, 20), longestPause)
	if later, ok := errors.AsType[putOffError](err); ok {
		pause = max(pause, min(later.wait, longestPutOff))
	}
	p.NotBefore = now.Add(pause)
}

// putOff returns when a run that is due may begin.
func (s *source) putOff(due, now time.Time) time.Time {
	not := s.progress.NotBefore
	if due.IsZero() || !not.After(due) || not.Sub(now) > longestPutOff { // the clock was set
		return due
	}
	return not
}
