package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"tapgw/internal/proc"
	"tapgw/internal/protocol"
)

// Files that come with prompts.

// maxUploadBytes bounds the files that a session keeps of its prompts.
const maxUploadBytes = 100 << 20

// uploads are the files that a session's prompts brought. Its lock is a leaf.
type uploads struct {
	dir string // made with the first file; "": the gateway keeps none

	mu    sync.Mutex // guards the fields below
	bytes int        // of the files that are there
	count int        // of all files ever
}

func newUploads(dir string) *uploads {
	if dir == "" {
		return &uploads{}
	}
	return &uploads{dir: filepath.Join(dir, "session-"+newCallID().String())}
}

// reserve takes room for a file and returns the number of the file. The error is PAYLOAD_TOO_LARGE.
func (u *uploads) reserve(size int) (number int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.bytes+size > maxUploadBytes {
		return 0, errorf(protocol.CodePayloadTooLarge,
			"the session's prompts have brought %d bytes of files, and more than %d are not kept",
			u.bytes, maxUploadBytes)
	}
	u.bytes += size
	u.count++
	return u.count, nil
}

// free gives room back.
func (u *uploads) free(size int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bytes -= size
}

// Upload keeps bytes that come with a prompt as a file that only the user can read, until the
// session ends. The attachment has the name that the person knows the file by. The error is
// PAYLOAD_TOO_LARGE if the session's files take too much room, INVALID_JSON if its host takes no
// attachments, INVALID_STATE if the gateway keeps no files, or says why the file can't be written.
// Whoever calls it calls [Session.RemoveUploads] if the session does not take the prompt.
func (s *Session) Upload(name, mime string, data []byte) (Attachment, error) {
	u := s.uploads
	switch {
	case !s.info.Attachments:
		return Attachment{}, errorf(protocol.CodeInvalidJSON,
			"prompts of sessions of host %s bring none", s.info.Kind)
	case u.dir == "":
		return Attachment{}, errorf(protocol.CodeInvalidState, "this gateway keeps no files")
	case s.isEnding():
		return Attachment{}, noSession(s.id)
	}
	if err := proc.PrivateDir(u.dir); err != nil {
		return Attachment{}, err
	}
	number, err := u.reserve(len(data))
	if err != nil {
		return Attachment{}, err
	}
	path := filepath.Join(u.dir, fmt.Sprintf("%d-%s", number, fileName(name)))
	if err := proc.WriteNew(path, data); err != nil {
		u.free(len(data))
		return Attachment{}, err
	}
	if s.isEnding() { // since, so perhaps after its files were removed
		s.removeUploadDir()
		return Attachment{}, noSession(s.id)
	}
	return Attachment{Path: path, Name: name, MIME: mime}, nil
}

// RemoveUploads removes the files of attachments that [Session.Upload] made.
func (s *Session) RemoveUploads(list []Attachment) {
	for _, a := range list {
		if a.Name == "" {
			continue
		}
		info, err := os.Stat(a.Path)
		if err == nil && os.Remove(a.Path) == nil {
			s.uploads.free(int(info.Size()))
		}
	}
}

// removeUploadDir removes all files that prompts brought, once the session has ended.
func (s *Session) removeUploadDir() {
	if s.uploads.dir == "" {
		return
	}
	if err := os.RemoveAll(s.uploads.dir); err != nil {
		s.g.o.Log.Warn("removing the files of a session's prompts", "session", s.id, "error", err)
	}
}

// fileName makes the name of a file from the name that a person gave, of which the extension
// matters most.
func fileName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-',
			r == '_':
			return r
		}
		return '_'
	}, name)
	return name[max(0, len(name)-80):]
}
