package server

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tapgw/internal/adminapi"
	"tapgw/internal/filelist"
	"tapgw/internal/gateway"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// apiMaxFiles bounds the files of an answer.
const apiMaxFiles = 50

// files answers GET /sessions/{id}/files.
func (a *api) files(r *http.Request, s *gateway.Session) (any, error) {
	q, err := readParams(r, "query")
	if err != nil {
		return nil, err
	}
	dir := s.View().CWD
	info, err := os.Stat(dir)
	if dir == "" || !filepath.IsAbs(dir) || err != nil || !info.IsDir() {
		return nil, protocol.Errorf(protocol.CodeInvalidState,
			"the session has no directory on this machine, so its files can't be listed")
	}
	found, err := filelist.Find(r.Context(), dir, q.Get("query"), apiMaxFiles)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeInvalidState,
			"the session's directory can't be read: %v", err)
	}
	return adminapi.Files{Files: found.Files, More: found.More}, nil
}

// commands answers GET /sessions/{id}/commands.
func (a *api) commands(r *http.Request, s *gateway.Session) (any, error) {
	list, err := s.Commands(r.Context())
	return orEmpty(list), err
}

// runCommand answers POST /sessions/{id}/commands/{name}.
func (a *api) runCommand(r *http.Request, s *gateway.Session, b adminapi.RunCommand) (any, error) {
	input := strings.TrimSpace(b.Input)
	return s.RunCommand(r.Context(), r.PathValue("name"), input, spans.FromHeader(r.Header))
}

// Limits of the files whose bytes come with a prompt.
const (
	apiMaxUploads     = 20
	apiMaxUpload      = 5 << 20  // bytes of one
	apiMaxUploadBytes = 10 << 20 // of all
	// apiQueryTimeout bounds the wait for such a body: it comes in time at 100 kB/s.
	apiQueryTimeout = 3 * time.Minute
	// apiMaxQuery bounds the body of a prompt: its files in base64 beside all else.
	apiMaxQuery = apiMaxBody + (apiMaxUploadBytes+2)/3*4
)

// mimeType is the type of a file, without parameters (RFC 6838, 4.2).
var mimeType = lazyregexp.New(`^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$`)

// checkUploads checks the attachments that bring bytes. The error names the field.
func checkUploads(list []adminapi.Attachment) error {
	count, all := 0, 0
	for i, x := range list {
		at := fmt.Sprintf("attachments[%d].", i)
		if len(x.Data) == 0 {
			for field, value := range map[string]string{"name": x.Name, "mimeType": x.MIMEType} {
				if value != "" {
					return fieldError(at+field,
						"is of an attachment with data, which must not be empty")
				}
			}
			continue
		}
		count++
		all += len(x.Data)
		switch {
		case x.Path != "":
			return fieldError(at+"path", "must be left out with data")
		case x.FirstLine != nil, x.LastLine != nil:
			return fieldError(at+"firstLine", "must be left out with data")
		case x.Name == "":
			return fieldError(at+"name", "is required with data")
		case len(x.Name) > 255 || strings.ContainsFunc(x.Name, isControlOrSlash):
			return fieldError(at+"name",
				"must be a file's name of at most 255 bytes, without a directory")
		case x.MIMEType != "" && !mimeType.MatchString(x.MIMEType):
			return fieldError(at+"mimeType", "must be a type such as text/plain, not %q",
				x.MIMEType)
		case len(x.Data) > apiMaxUpload:
			return tooLarge(at+"data", "has %d bytes, and at most %d are taken", len(x.Data),
				apiMaxUpload)
		case count > apiMaxUploads:
			return fieldError("attachments", "at most %d may have data", apiMaxUploads)
		case all > apiMaxUploadBytes:
			return tooLarge("attachments", "have more than %d bytes of data together",
				apiMaxUploadBytes)
		}
	}
	return nil
}

func isControlOrSlash(r rune) bool {
	return unicode.IsControl(r) || r == '/' || r == '\\' || r == utf8.RuneError
}

func tooLarge(field, format string, args ...any) error {
	return protocol.Errorf(protocol.CodePayloadTooLarge, "%s: %s", field,
		fmt.Sprintf(format, args...))
}

// keepUploads keeps the bytes that attachments bring for the session, and puts them into their
// places in made.
func keepUploads(s *gateway.Session, list []adminapi.Attachment, made []gateway.Attachment) error {
	for i, x := range list {
		if len(x.Data) == 0 {
			continue
		}
		a, err := s.Upload(x.Name, x.MIMEType, x.Data)
		if err != nil {
			s.RemoveUploads(made)
			return fmt.Errorf("attachments[%d].data: %w", i, err)
		}
		made[i] = a
	}
	return nil
}
