package copilot

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/gateway"
)

// Attachments of a prompt: their form for the runtime, and the right to read their paths.

// maxSelection bounds the size of a file whose lines are attached, in bytes.
const maxSelection = 8 << 20

// attachments converts a prompt's attachments for the runtime. The model gets images, selected
// lines, and the names of files and directories. The session may read the attached paths, but no
// token of the gateway below them. The error is INVALID_JSON.
func (s *session) attachments(list []gateway.Attachment) ([]sdk.Attachment, error) {
	made := make([]sdk.Attachment, 0, len(list))
	for i, a := range list {
		m, err := s.attachment(a)
		if err != nil {
			return nil, invalidRequest("attachments[%d]: %v", i, err)
		}
		made = append(made, m)
	}
	for _, a := range list {
		if target, err := filepath.EvalSymlinks(a.Path); err == nil {
			s.mu.Lock()
			s.attachedPaths = append(s.attachedPaths, attachedPath{target, a.Name != ""})
			s.mu.Unlock()
		}
	}
	return made, nil
}

func (s *session) attachment(a gateway.Attachment) (sdk.Attachment, error) {
	info, err := os.Stat(a.Path)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(a.Path)
	switch {
	case info.IsDir() && a.First > 0:
		return nil, fmt.Errorf("%s is a directory and has no lines", a.Path)
	case info.IsDir():
		return &rpc.AttachmentDirectory{DisplayName: name, Path: a.Path}, nil
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is neither a file nor a directory", a.Path)
	case a.First > 0:
		return selection(a, info.Size())
	case a.Name != "":
		return s.upload(a, info.Size())
	}
	if isImage(a.Path) {
		s.hasShownImage.Store(true)
	}
	return &rpc.AttachmentFile{DisplayName: name, Path: a.Path}, nil
}

// maxInline bounds the texts that prompts bring and that the model gets whole, in bytes.
const maxInline = 64 << 10

// shownImages are the types of images that the runtime shows the model.
var shownImages = []string{"image/png", "image/jpeg", "image/webp", "image/gif"}

// upload attaches a file that a prompt brought. The runtime keeps images and short texts in the
// session's history, so they outlast the file. It gives the model no other kinds of bytes, so these
// stay a file that the model may read.
func (s *session) upload(a gateway.Attachment, size int64) (sdk.Attachment, error) {
	data, err := os.ReadFile(a.Path)
	if err != nil {
		return nil, err
	}
	kind := http.DetectContentType(data)
	switch {
	case slices.Contains(shownImages, kind):
		s.hasShownImage.Store(true)
	case size <= maxInline && utf8.Valid(data) && bytes.IndexByte(data, 0) < 0:
		if kind = "text/plain"; strings.HasPrefix(a.MIME, "text/") {
			kind = a.MIME
		}
	default:
		return &rpc.AttachmentFile{DisplayName: a.Name, Path: a.Path}, nil
	}
	text := base64.StdEncoding.EncodeToString(data)
	return &rpc.AttachmentBlob{Data: &text, DisplayName: &a.Name, MIMEType: kind}, nil
}

func isImage(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, 512)
	n, _ := f.Read(head)
	return strings.HasPrefix(http.DetectContentType(head[:n]), "image/")
}

// selection attaches lines of a text file.
func selection(a gateway.Attachment, size int64) (sdk.Attachment, error) {
	if size > maxSelection {
		return nil, fmt.Errorf("%s is larger than %d bytes: attach it without lines", a.Path,
			maxSelection)
	}
	data, err := os.ReadFile(a.Path)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, fmt.Errorf("%s is no text and has no lines", a.Path)
	}
	lines := slices.Collect(strings.Lines(string(data)))
	if a.First > len(lines) || a.Last > len(lines) {
		return nil, fmt.Errorf("%s has %d lines, not %d", a.Path, len(lines), max(a.First, a.Last))
	}
	chosen := lines[a.First-1 : a.Last]
	end := strings.TrimRight(chosen[len(chosen)-1], "\r\n")
	return &rpc.AttachmentSelection{
		DisplayName: fmt.Sprintf("%s:%d-%d", filepath.Base(a.Path), a.First, a.Last),
		FilePath:    a.Path,
		Text:        strings.TrimRight(strings.Join(chosen, ""), "\r\n"),
		Selection: rpc.AttachmentSelectionDetails{ // from 0, in UTF-16
			Start: rpc.AttachmentSelectionDetailsStart{Line: int64(a.First - 1)},
			End: rpc.AttachmentSelectionDetailsEnd{
				Line: int64(a.Last - 1), Character: int64(len(utf16.Encode([]rune(end)))),
			},
		},
	}, nil
}

// attachedPath is the real path of a prompt's attachment. isUpload is set for a file that a prompt
// brought, which lies beside the gateway's tokens.
type attachedPath struct {
	path     string
	isUpload bool
}

// isAttached reports whether a request is to read a path that a prompt attached. An attached
// directory above the gateway's tokens does not permit reading these.
func (s *session) isAttached(req sdk.PermissionRequest) bool {
	read, ok := req.(*rpc.PermissionRequestRead)
	if !ok {
		return false
	}
	s.mu.Lock()
	paths := slices.Clone(s.attachedPaths)
	s.mu.Unlock()
	path := absolute(read.Path, s.cwd)
	return slices.ContainsFunc(paths, func(p attachedPath) bool {
		return inside(path, p.path) && (p.isUpload || !s.containsTokens(path))
	})
}
