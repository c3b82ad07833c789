package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tapgw/configs"
	"tapgw/internal/weburl"
	"tapgw/providers"
)

// This file is the provider of kind http: its tools are HTTP requests, and it runs in the gateway's
// process.

const (
	maxAnswer = 1 << 20 // bytes of an answer; a longer one is of no use to a model
	maxReason = 500     // bytes of an error answer that the model gets
	// lateness is how much longer the gateway waits than the request may take, so that the model
	// gets the error of the request and not the gateway's timeout.
	lateness = 2 * time.Second
)

// runHTTP offers tools whose calls are HTTP requests.
func runHTTP(ctx context.Context, r *Run) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: weburl.StayOnHost("it")}
	p := providers.New(r.Provider.Name, r.Options())
	tools := make([]providers.Tool, len(r.Provider.HTTP))
	for i, t := range r.Provider.HTTP {
		h := httpTool{t, client}
		tools[i] = providers.Tool{
			Name: t.Name, Description: t.Description, Parameters: h.schema(),
			Timeout: min(t.Timeout+lateness, time.Hour), Handler: h.call,
		}
	}
	if _, err := p.SetTools(ctx, tools); err != nil {
		return err
	}
	return p.Run(ctx)
}

// Options returns the options of a provider that runs in this process. Its errors go to Line and
// Trouble.
func (r *Run) Options() *providers.Options {
	return &providers.Options{URL: r.URL, Token: r.Token, Session: r.Session,
		Logger: slog.New(slog.DiscardHandler),
		OnError: func(err error) {
			r.Line("tapgw", err.Error())
			r.Trouble(err)
		}}
}

// LineFaults reports faults of the provider that are at no line of its file. It replaces the
// earlier ones.
func (r *Run) LineFaults(lines []string) {
	faults := make([]configs.Fault, len(lines))
	for i, line := range lines {
		faults[i] = configs.Fault{File: r.Provider.File, Line: 1, Column: 1, Message: line}
	}
	r.Faults(faults)
}

// httpTool turns calls into requests.
type httpTool struct {
	configs.HTTPTool
	client *http.Client
}

// schema is the JSON Schema of the arguments.
func (h *httpTool) schema() json.RawMessage {
	s := struct {
		Type       string                     `json:"type"`
		Properties map[string]configs.HTTPArg `json:"properties"`
		Required   []string                   `json:"required,omitempty"`
		Additional bool                       `json:"additionalProperties"`
	}{Type: "object", Properties: map[string]configs.HTTPArg{}}
	for _, a := range h.Args {
		s.Properties[a.Name] = a
		if a.Required {
			s.Required = append(s.Required, a.Name)
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and booleans only
	}
	return data
}

// call makes the request of a call and returns the model's part of the answer.
func (h *httpTool) call(ctx context.Context, args json.RawMessage) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	req, err := h.request(ctx, args)
	if err != nil {
		return nil, err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, h.requestError(ctx, req, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, h.requestError(ctx, req, err)
	case resp.StatusCode/100 != 2:
		reason := strings.Join(
			strings.Fields(strings.ToValidUTF8(string(data[:min(len(data), maxReason)]), "\ufffd")),
			" ",
		)
		return nil, fmt.Errorf("%s %s answered %s: %s", req.Method, req.URL.Host, resp.Status,
			reason)
	case len(data) > maxAnswer:
		return nil, fmt.Errorf("%s %s answered with more than %d bytes", req.Method, req.URL.Host,
			maxAnswer)
	}
	return h.result(data)
}

// requestError words an error of a request, without the URL, which may contain secrets.
func (h *httpTool) requestError(ctx context.Context, req *http.Request, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &providers.Error{
			Code: providers.CodeTimeout,
			Message: fmt.Sprintf("%s %s did not answer within %s", req.Method, req.URL.Host,
				h.Timeout),
		}
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	return fmt.Errorf("%s %s: %w", req.Method, req.URL.Host, err)
}

// parseArgs returns the arguments by name. Those that are null are left out.
func (h *httpTool) parseArgs(args json.RawMessage) (map[string]any, error) {
	values := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	if len(args) > 0 {
		if err := dec.Decode(&values); err != nil {
			return nil, fmt.Errorf("the arguments are no object: %w", err)
		}
	}
	maps.DeleteFunc(values, func(_ string, v any) bool { return v == nil })
	return values, nil
}

func argText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

func (h *httpTool) request(ctx context.Context, args json.RawMessage) (*http.Request, error) {
	values, err := h.parseArgs(args)
	if err != nil {
		return nil, err
	}
	target, err := h.target(values)
	if err != nil {
		return nil, err
	}
	var body io.Reader
	if h.Body != "" {
		data, err := h.fillBody(values)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, h.Method, target, body)
	if err != nil {
		return nil, fmt.Errorf("the arguments make no URL: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "tapgw")
	headers, err := configs.ExpandHeaders(h.Headers)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, headers)
	return req, nil
}

// target fills the URL with arguments. An argument becomes one segment of the path or one value of
// the query. A query pair whose argument is missing is left out.
func (h *httpTool) target(values map[string]any) (string, error) {
	var path strings.Builder
	parts := h.URL
	for ; len(parts) > 0; parts = parts[1:] {
		p := parts[0]
		if before, after, ok := strings.Cut(p.Text, "?"); ok {
			path.WriteString(before)
			parts = append(configs.Template{{Text: after}}, parts[1:]...)
			break
		}
		path.WriteString(p.Text)
		if p.Arg == "" {
			continue
		}
		v := argText(values[p.Arg])
		if v == "" {
			return "", fmt.Errorf("%s must not be empty: it is a part of the URL's path", p.Arg)
		}
		path.WriteString(url.PathEscape(v))
	}
	_, rest, _ := strings.Cut(path.String(), "://")
	for segment := range strings.SplitSeq(rest, "/") {
		if segment == "." || segment == ".." {
			return "", fmt.Errorf("%q can't be a part of the URL's path", segment)
		}
	}
	if len(parts) == 0 {
		return path.String(), nil
	}
	var pairs []string
	pair, left := "", false
	end := func() {
		if !left && pair != "" {
			pairs = append(pairs, pair)
		}
		pair, left = "", false
	}
	for _, p := range parts {
		for i, piece := range strings.Split(p.Text, "&") {
			if i > 0 {
				end()
			}
			pair += piece
		}
		if p.Arg != "" {
			v, ok := values[p.Arg]
			left = left || !ok
			pair += url.QueryEscape(argText(v))
		}
	}
	end()
	if len(pairs) == 0 {
		return path.String(), nil
	}
	return path.String() + "?" + strings.Join(pairs, "&"), nil
}

// fillBody fills the body with arguments.
func (h *httpTool) fillBody(values map[string]any) ([]byte, error) {
	dec := json.NewDecoder(strings.NewReader(h.Body))
	dec.UseNumber()
	var body any
	if err := dec.Decode(&body); err != nil {
		return nil, fmt.Errorf("reading the body of the tool: %w", err)
	}
	body, _ = fillValue(body, values)
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("writing the body of the request: %w", err)
	}
	return data, nil
}

// fillValue replaces arguments in the strings of a JSON value. A string that is one argument
// becomes the argument's value. It returns false if that argument is missing, and the string is
// left out of the object or array around it.
func fillValue(v any, values map[string]any) (any, bool) {
	switch v := v.(type) {
	case string:
		t, err := configs.ParseTemplate(v)
		if err != nil {
			return v, true
		}
		if len(t) == 1 && t[0].Arg != "" {
			value, ok := values[t[0].Arg]
			return value, ok
		}
		var b strings.Builder
		for _, p := range t {
			b.WriteString(p.Text)
			if p.Arg != "" {
				b.WriteString(argText(values[p.Arg]))
			}
		}
		return b.String(), true
	case []any:
		list := []any{}
		for _, e := range v {
			if e, ok := fillValue(e, values); ok {
				list = append(list, e)
			}
		}
		return list, true
	case map[string]any:
		for key, e := range v {
			if e, ok := fillValue(e, values); ok {
				v[key] = e
			} else {
				delete(v, key)
			}
		}
	}
	return v, true
}

// result returns the part of an answer that the model gets.
func (h *httpTool) result(data []byte) (any, error) {
	if h.Result == configs.ResultText {
		if !utf8.Valid(data) {
			return nil, errors.New("the answer is no text")
		}
		return string(data), nil
	}
	if len(bytes.TrimSpace(data)) == 0 && h.Result == configs.ResultJSON {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	if h.Result == configs.ResultJSON {
		return v, nil
	}
	v, ok := configs.ResolvePointer(v, h.Result)
	if !ok {
		return nil, fmt.Errorf("the answer has nothing at %s", h.Result)
	}
	return v, nil
}
