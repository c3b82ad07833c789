package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"tapgw/internal/gateway"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/protocol"
)

// apiTurnEnd is the last line of a query.
type apiTurnEnd struct {
	Done  bool          `json:"done"`
	Error *apiTurnError `json:"error,omitempty"`
}

type apiTurnError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// apiSessionError is the code of a turn that failed in the session itself.
const apiSessionError = "SESSION_ERROR"

func (a *api) query(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body struct {
		Prompt      string            `json:"prompt"`
		Mode        string            `json:"mode"`
		Detach      bool              `json:"detach"`
		Attachments []apiAttachment   `json:"attachments"`
		Headers     map[string]string `json:"headers"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(body.Prompt) == "":
		return apiFault("prompt", "is required and must not be empty")
	case body.Mode == "":
		body.Mode = "enqueue"
	case body.Mode != "enqueue" && body.Mode != "immediate":
		return apiFault("mode", "must be enqueue or immediate, not %q", body.Mode)
	}
	p := gateway.Prompt{Text: body.Prompt, Mode: body.Mode, Source: gateway.SourceUser, Headers: body.Headers, Traceparent: r.Header.Get("Traceparent")}
	var err error
	if p.Attachments, err = apiAttachments(body.Attachments); err != nil {
		return err
	}
	if err := apiHeaders(body.Headers); err != nil {
		return err
	}
	if body.Detach {
		if _, err := s.Prompt(r.Context(), p); err != nil {
			return err
		}
		return apiAnswer(w, http.StatusAccepted, struct{}{})
	}
	turn, err := s.Turn(r.Context(), p)
	if err != nil {
		return err
	}
	defer turn.Close()
	l := newAPILines(w, r)
	if end := a.followTurn(r.Context(), l, turn); end != nil {
		l.write(end)
	}
	return nil
}

// followTurn writes the live lines of a turn and returns how it ended, nil when
// the reader is gone.
func (a *api) followTurn(ctx context.Context, l *apiLines, turn *gateway.Turn) *apiTurnEnd {
	end := &apiTurnEnd{Done: true}
	for {
		lines, err := turn.Next(ctx)
		for _, line := range lines {
			if l.write(line.View()); l.err != nil {
				return nil
			}
			if line.Event.SessionError != "" {
				end.Error = &apiTurnError{apiSessionError, line.Event.SessionError}
			}
		}
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return nil
		case end.Error != nil || errors.Is(err, gateway.ErrTurnEnded):
		case errors.Is(err, gateway.ErrSessionEnded):
			end.Error = &apiTurnError{string(protocol.CodeInvalidSession), "the session ended before the turn did"}
		default:
			end.Error = &apiTurnError{string(protocol.CodeCancelled), err.Error()}
		}
		return end
	}
}

// apiAttachment is a file or directory that goes with a prompt, or lines of a file.
type apiAttachment struct {
	Path      string `json:"path"`
	FirstLine *int   `json:"firstLine"`
	LastLine  *int   `json:"lastLine"` // absent: as the first
}

// apiMaxAttachments bounds what goes with a prompt.
const apiMaxAttachments = 100

func apiAttachments(list []apiAttachment) ([]gateway.Attachment, error) {
	if len(list) > apiMaxAttachments {
		return nil, apiFault("attachments", "must be at most %d", apiMaxAttachments)
	}
	made := make([]gateway.Attachment, len(list))
	for i, x := range list {
		at := fmt.Sprintf("attachments[%d].", i)
		if err := apiReadable(at+"path", x.Path); err != nil {
			return nil, err
		}
		a := gateway.Attachment{Path: x.Path}
		switch {
		case x.FirstLine == nil && x.LastLine != nil:
			return nil, apiFault(at+"firstLine", "is required with lastLine")
		case x.FirstLine != nil:
			a.First, a.Last = *x.FirstLine, *x.FirstLine
			if x.LastLine != nil {
				a.Last = *x.LastLine
			}
			if a.First < 1 || a.Last < a.First {
				return nil, apiFault(at+"lastLine", "lines count from 1, and the last is not before the first: %d-%d", a.First, a.Last)
			}
		}
		made[i] = a
	}
	return made, nil
}

// apiReadable checks that a path leads to a file or directory that can be read.
func apiReadable(field, path string) error {
	switch {
	case path == "":
		return apiFault(field, "is required")
	case !filepath.IsAbs(path):
		return apiFault(field, "%q must be an absolute path", path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return apiFault(field, "%q does not exist", path)
	case err != nil:
		return apiFault(field, "%v", err)
	case !info.IsDir() && !info.Mode().IsRegular():
		return apiFault(field, "%q is neither a file nor a directory", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return apiFault(field, "%v", err)
	}
	return f.Close()
}

// Names of headers are tokens (RFC 9110, 5.6.2), their values printable.
var (
	headerName  = lazyregexp.New("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")
	headerValue = lazyregexp.New(`^[\t\x20-\x7e]*$`)
)

// apiOwnHeaders are those that a prompt can't set: they say who asks, or how the
// request is framed.
var apiOwnHeaders = map[string]string{
	"authorization": "the endpoint's key is the session's", "proxy-authorization": "the endpoint's key is the session's",
	"api-key": "the endpoint's key is the session's", "x-api-key": "the endpoint's key is the session's", "cookie": "the endpoint's key is the session's",
	"host": "the runtime sets it", "content-length": "the runtime sets it", "content-type": "the runtime sets it", "connection": "the runtime sets it",
	"transfer-encoding": "the runtime sets it", "upgrade": "the runtime sets it", "te": "the runtime sets it", "trailer": "the runtime sets it",
}

func apiHeaders(headers map[string]string) error {
	if len(headers) > 50 {
		return apiFault("headers", "must be at most 50")
	}
	for name, value := range headers {
		switch why, own := apiOwnHeaders[strings.ToLower(name)]; {
		case !headerName.MatchString(name):
			return apiFault("headers", "%q is not the name of a header", name)
		case own:
			return apiFault("headers", "%s can't be set: %s", name, why)
		case len(value) > 4096 || !headerValue.MatchString(value):
			return apiFault("headers", "the value of %s must be one printable line of at most 4096 characters", name)
		}
	}
	return nil
}
