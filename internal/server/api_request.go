package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// statusOfCode gives each code its HTTP status.
var statusOfCode = map[protocol.Code]int{
	protocol.CodeNotFound:         http.StatusNotFound,
	protocol.CodeInvalidSession:   http.StatusNotFound,
	protocol.CodeInvalidJSON:      http.StatusBadRequest,
	protocol.CodeInvalidArguments: http.StatusBadRequest,
	protocol.CodeUnauthorized:     http.StatusForbidden,
	protocol.CodeDenied:           http.StatusForbidden,
	protocol.CodeRateLimited:      http.StatusTooManyRequests,
	protocol.CodePayloadTooLarge:  http.StatusRequestEntityTooLarge,
	protocol.CodeToolConflict:     http.StatusConflict,
	protocol.CodeInvalidState:     http.StatusConflict,
	protocol.CodeTimeout:          http.StatusGatewayTimeout,
}

// codeOf returns the code of an error, and its text without the code.
func codeOf(err error) (code protocol.Code, message string) {
	code, message = protocol.CodeInternal, err.Error()
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		code = e.Code
		// The code stands beside the message; around it may stand more.
		message = strings.Replace(message, e.Error(), e.Message, 1)
	} else if errors.Is(err, gateway.ErrSessionEnded) {
		code = protocol.CodeInvalidState
	}
	return code, message
}

func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error) {
	code, message := codeOf(err)
	status, ok := statusOfCode[code]
	if !ok && r.Context().Err() != nil {
		return // the client is gone
	}
	if !ok {
		status = http.StatusInternalServerError
		a.log.Warn("answering an admin request", "method", r.Method, "path", r.URL.Path, "error",
			err)
	}
	fail(w, status, string(code), message)
}

// fieldError is an INVALID_JSON error about a field.
func fieldError(field, format string, args ...any) error {
	return protocol.Errorf(protocol.CodeInvalidJSON, "%s: %s", field, fmt.Sprintf(format, args...))
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	var b bytes.Buffer
	if err := encodeJSON(&b, v); err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // fails if the client is gone
	return nil
}

func encodeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// readBody reads a request's body into v. It refuses a field that v does not have, and names
// it. An empty body is an object without fields.
func readBody(w http.ResponseWriter, r *http.Request, v any) error {
	return readBodyUpTo(w, r, v, apiMaxBody)
}

// readBodyUpTo is readBody for a body of at most so many bytes.
func readBodyUpTo(w http.ResponseWriter, r *http.Request, v any, most int64) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return protocol.Errorf(protocol.CodePayloadTooLarge, "body: more than %d bytes", most)
	}
	if err != nil {
		return fieldError("body", "%v", err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	err = jsonv2.Unmarshal(data, v, jsonv2.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	if errors.Is(err, jsonv2.ErrUnknownName) {
		se, _ := errors.AsType[*jsonv2.SemanticError](err)
		return fieldError(se.JSONPointer.LastToken(),
			"is not a field of this request, which takes %s", joinNames(fieldNames(v)))
	}
	return protocol.Errorf(protocol.CodeInvalidJSON, "%s",
		strings.TrimPrefix(protocol.Explain("body", err), "body."))
}

// readParams reads the query of a URL. It refuses a parameter that is not among the known.
func readParams(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fieldError("query", "%v", err)
	}
	for name := range q {
		if !slices.Contains(known, name) {
			return nil, fieldError(name, "is not a parameter of this request, which takes %s",
				joinNames(known))
		}
	}
	return q, nil
}

func readFlag(q url.Values, name string) (bool, error) {
	switch v := q.Get(name); v {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	default:
		return false, fieldError(name, "must be 0 or 1, not %q", v)
	}
}

// orEmpty returns an empty list for nil, so that JSON has an array and not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// readLast reads how many entries a request asks for: 20 if it does not say. Fewer than least
// are refused.
func readLast(q url.Values, least int) (int, error) {
	if !q.Has("last") {
		return protocol.DefaultQueryLast, nil
	}
	n, err := strconv.Atoi(q.Get("last"))
	if err != nil || n < least {
		return 0, fieldError("last", "must be a whole number from %d, not %q", least, q.Get("last"))
	}
	return n, nil
}

// fieldNames are the JSON names of the fields that a request's body may have; v points to its
// type.
func fieldNames(v any) []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v).Elem()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// joinNames lists names for people.
func joinNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
