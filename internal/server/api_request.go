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

// apiStatusOf gives each code its HTTP status.
var apiStatusOf = map[protocol.Code]int{
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

func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error) {
	code, message := protocol.CodeInternal, err.Error()
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		code = e.Code
		// The code stands beside the message; around it may stand more.
		message = strings.Replace(message, e.Error(), e.Message, 1)
	} else if errors.Is(err, gateway.ErrSessionEnded) {
		code = protocol.CodeInvalidState
	}
	status, ok := apiStatusOf[code]
	if !ok && r.Context().Err() != nil {
		return // nobody listens
	}
	if !ok {
		status = http.StatusInternalServerError
		a.log.Warn("answering an admin request", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	fail(w, status, string(code), message)
}

// apiFault is an INVALID_JSON error about a field.
func apiFault(field, format string, args ...any) error {
	return &protocol.Error{Code: protocol.CodeInvalidJSON, Message: field + ": " + fmt.Sprintf(format, args...)}
}

func apiAnswer(w http.ResponseWriter, status int, v any) error {
	var b bytes.Buffer
	if err := apiEncode(&b, v); err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // fails when nobody listens any more
	return nil
}

func apiEncode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// apiBody reads a request's body into v, strictly: what it does not know it
// refuses by name. An empty body is an object without members.
func apiBody(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, apiMaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &protocol.Error{Code: protocol.CodePayloadTooLarge, Message: fmt.Sprintf("body: more than %d bytes", apiMaxBody)}
	}
	if err != nil {
		return &protocol.Error{Code: protocol.CodeInvalidJSON, Message: "body: " + err.Error()}
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
		return apiFault(se.JSONPointer.LastToken(), "is not a field of this request, which takes %s", apiNames(apiFields(v)))
	}
	return &protocol.Error{Code: protocol.CodeInvalidJSON, Message: strings.TrimPrefix(protocol.Explain("body", err), "body.")}
}

// apiParams reads the query of a URL, with none but the known parameters.
func apiParams(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, apiFault("query", "%v", err)
	}
	for name := range q {
		if !slices.Contains(known, name) {
			return nil, apiFault(name, "is not a parameter of this request, which takes %s", apiNames(known))
		}
	}
	return q, nil
}

func apiFlag(q url.Values, name string) (bool, error) {
	switch v := q.Get(name); v {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	default:
		return false, apiFault(name, "must be 0 or 1, not %q", v)
	}
}

// apiList makes an empty list of none, so that JSON has an array.
func apiList[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// apiLast reads how many entries are wanted: 20 when left out, at least least.
func apiLast(q url.Values, least int) (int, error) {
	if !q.Has("last") {
		return protocol.DefaultQueryLast, nil
	}
	n, err := strconv.Atoi(q.Get("last"))
	if err != nil || n < least {
		return 0, apiFault("last", "must be a whole number from %d, not %q", least, q.Get("last"))
	}
	return n, nil
}

// apiFields are the members that a request's body may have; v is what it is read
// into.
func apiFields(v any) []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v).Elem()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// apiNames lists names for people.
func apiNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
