package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// Prompts over the admin API: their attachments, their headers and the lines of their turn.

func (a *api) query(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	// Files take longer than other bodies over a slow link.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(apiQueryTimeout))
	var body adminapi.Query
	if err := readBodyUpTo(w, r, &body, apiMaxQuery); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(body.Prompt) == "":
		return fieldError("prompt", "is required and must not be empty")
	case body.Mode == "":
		body.Mode = adminapi.ModeEnqueue
	case body.Mode != adminapi.ModeEnqueue && body.Mode != adminapi.ModeImmediate:
		return fieldError("mode", "must be enqueue or immediate, not %q", body.Mode)
	}
	p := gateway.Prompt{
		Text: body.Prompt, Mode: body.Mode, Source: gateway.SourceUser,
		Headers: body.Headers, Traceparent: spans.FromHeader(r.Header),
	}
	if err := checkHeaders(body.Headers); err != nil {
		return err
	}
	var err error
	if p.Attachments, err = readAttachments(body.Attachments); err != nil {
		return err
	}
	if err := keepUploads(s, body.Attachments, p.Attachments); err != nil {
		return err
	}
	if body.Detach {
		if _, err := s.Prompt(r.Context(), p); err != nil {
			return a.notPrompted(r, s, p, err)
		}
		return writeJSON(w, http.StatusAccepted, adminapi.Nothing{})
	}
	turn, err := s.Turn(r.Context(), p)
	if err != nil {
		return a.notPrompted(r, s, p, err)
	}
	defer turn.Close()
	l := newLineWriter(w, r)
	if end := a.followTurn(r.Context(), l, turn); end != nil {
		l.write(end)
	}
	return nil
}

// notPrompted removes the uploads of a prompt that the session did not take. A prompt whose client
// went away may wait.
func (a *api) notPrompted(r *http.Request, s *gateway.Session, p gateway.Prompt, err error) error {
	if r.Context().Err() == nil {
		s.RemoveUploads(p.Attachments)
	}
	return err
}

// followTurn writes the live lines of a turn and returns how it ended, nil when
// the reader is gone.
func (a *api) followTurn(ctx context.Context, l *lineWriter, turn *gateway.Turn) *adminapi.TurnEnd {
	end := &adminapi.TurnEnd{Done: true}
	for {
		lines, err := turn.Next(ctx)
		for _, line := range lines {
			if l.write(line.View()); l.err != nil {
				return nil
			}
			if line.Event.SessionError != "" {
				end.Error = &adminapi.Failure{Code: adminapi.CodeSession,
					Message: line.Event.SessionError}
			}
		}
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return nil
		case end.Error != nil || errors.Is(err, gateway.ErrTurnEnded):
		case errors.Is(err, gateway.ErrSessionEnded):
			end.Error = &adminapi.Failure{
				Code:    string(protocol.CodeInvalidSession),
				Message: "the session ended before the turn did",
			}
		default:
			end.Error = &adminapi.Failure{Code: string(protocol.CodeCancelled),
				Message: err.Error()}
		}
		return end
	}
}

// apiMaxAttachments bounds how many files go with a prompt.
const apiMaxAttachments = 100

// readAttachments checks the attachments of a prompt. The places of those that bring bytes are left
// empty. The error names the field.
func readAttachments(list []adminapi.Attachment) ([]gateway.Attachment, error) {
	if len(list) > apiMaxAttachments {
		return nil, fieldError("attachments", "must be at most %d", apiMaxAttachments)
	}
	if err := checkUploads(list); err != nil {
		return nil, err
	}
	made := make([]gateway.Attachment, len(list))
	for i, x := range list {
		if len(x.Data) > 0 {
			continue
		}
		at := fmt.Sprintf("attachments[%d].", i)
		if err := checkReadable(at+"path", x.Path); err != nil {
			return nil, err
		}
		a := gateway.Attachment{Path: x.Path}
		switch {
		case x.FirstLine == nil && x.LastLine != nil:
			return nil, fieldError(at+"firstLine", "is required with lastLine")
		case x.FirstLine != nil:
			a.First, a.Last = *x.FirstLine, *x.FirstLine
			if x.LastLine != nil {
				a.Last = *x.LastLine
			}
			if a.First < 1 || a.Last < a.First {
				return nil, fieldError(at+"lastLine",
					"lines count from 1, and the last is not before the first: %d-%d", a.First,
					a.Last)
			}
		}
		made[i] = a
	}
	return made, nil
}

// checkReadable checks that a path is an absolute one of a file or directory that can be
// read. The error names the field.
func checkReadable(field, path string) error {
	if path == "" {
		return fieldError(field, "is required")
	}
	info, err := statPath(field, path)
	if err != nil {
		return err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return fieldError(field, "%q is neither a file nor a directory", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fieldError(field, "%v", err)
	}
	return f.Close()
}

// Names of headers are tokens (RFC 9110, 5.6.2), their values printable.
var (
	headerName  = lazyregexp.New("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")
	headerValue = lazyregexp.New(`^[\t\x20-\x7e]*$`)
)

// reservedHeaders are the headers that a prompt can't set, with the reason: they identify the
// client, or frame the request.
var reservedHeaders = map[string]string{
	"authorization":       isSessionsKey,
	"proxy-authorization": isSessionsKey,
	"api-key":             isSessionsKey,
	"x-api-key":           isSessionsKey,
	"cookie":              isSessionsKey,
	"host":                isRuntimes,
	"content-length":      isRuntimes,
	"content-type":        isRuntimes,
	"connection":          isRuntimes,
	"transfer-encoding":   isRuntimes,
	"upgrade":             isRuntimes,
	"te":                  isRuntimes,
	"trailer":             isRuntimes,
}

const (
	isSessionsKey = "the endpoint's key is the session's"
	isRuntimes    = "the runtime sets it"
)

func checkHeaders(headers map[string]string) error {
	if len(headers) > 50 {
		return fieldError("headers", "must be at most 50")
	}
	for name, value := range headers {
		switch why, isReserved := reservedHeaders[strings.ToLower(name)]; {
		case !headerName.MatchString(name):
			return fieldError("headers", "%q is not the name of a header", name)
		case isReserved:
			return fieldError("headers", "%s can't be set: %s", name, why)
		case len(value) > 4096 || !headerValue.MatchString(value):
			return fieldError("headers",
				"the value of %s must be one printable line of at most 4096 characters", name)
		}
	}
	return nil
}
