package evals

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"tapgw/internal/adminapi"
)

// maxRead is how much of a file a check reads, in bytes.
const maxRead = 8 << 20

// workspacePrefix begins the names of workspaces; the number of the process that made one follows.
const workspacePrefix = "tapctl-evals-"

// newWorkspace makes a directory with files. Their paths lead nowhere else, as configs has checked,
// and as the directory's root holds.
func newWorkspace(files map[string]string) (dir string, err error) {
	if dir, err = os.MkdirTemp("", workspacePrefix+strconv.Itoa(os.Getpid())+"-"); err != nil {
		return "", fmt.Errorf("making a workspace: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("opening the workspace: %w", err)
	}
	defer func() { _ = root.Close() }()
	for path, text := range files {
		if err := root.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", fmt.Errorf("making a directory of the workspace: %w", err)
		}
		if err := root.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("writing a file of the workspace: %w", err)
		}
	}
	return dir, nil
}

// readFile reads a file of a workspace after a session worked there, when the path may lead to
// anything. It returns an error for a link that leads out of the workspace, and for everything that
// is not a regular file.
func readFile(dir, path string) (text string, exists bool, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", false, fmt.Errorf("opening the workspace: %w", err)
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return "", false, nil
	}
	if err != nil {
		return "", true, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", true, errors.New("it is no file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	if err == nil && len(data) > maxRead {
		err = fmt.Errorf("it is larger than %d bytes", maxRead)
	}
	return string(data), true, err
}

var workspaceName = regexp.MustCompile(`^` + workspacePrefix + `([0-9]+)-`)

// Abandoned returns the sessions of earlier runs whose tapctl was killed before it could end them:
// their workspaces are on this machine, and the processes that made them are gone.
func Abandoned(sessions []adminapi.Session) (left []adminapi.Session) {
	for _, s := range sessions {
		found := workspaceName.FindStringSubmatch(filepath.Base(s.CWD))
		if found == nil {
			continue
		}
		pid, err := strconv.Atoi(found[1])
		if _, statErr := os.Stat(s.CWD); err != nil || statErr != nil {
			continue
		}
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			left = append(left, s)
		}
	}
	return left
}
