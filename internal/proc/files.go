package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Modes of private directories and files.
const (
	privateDir  = 0o700
	privateFile = 0o600
)

// PrivateDir makes a directory with mode 0700, and its parents if they are missing. If the
// directory exists, it removes the rights of other users. The error names the directory.
func PrivateDir(dir string) error {
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return fmt.Errorf("making a private directory: %w", err)
	}
	if err := os.Chmod(dir, privateDir); err != nil {
		return fmt.Errorf("making %s private: %w", dir, err)
	}
	return nil
}

// WritePrivate replaces a file by a file that only its owner may read, in one step, so that no
// reader sees half of it. It does not sync the file to the disk, because these files are useless
// after their process has ended, and a busy disk must not delay the start.
func WritePrivate(path string, data []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // O_EXCL, 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(privateFile), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// WriteNew makes a file with mode 0600 in one step, so that no reader sees half of it, and its
// directory for this user alone if that is missing. If the file exists, WriteNew leaves it alone
// and returns [fs.ErrExist].
func WriteNew(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Link(f.Name(), path) // unlike a rename, it fails if path exists
}

// RemoveOwn removes a file if it still has the content data, which this process wrote. Another
// process may have replaced the file; then it stays. Errors are ignored.
func RemoveOwn(path string, data []byte) {
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, data) {
		_ = os.Remove(path)
	}
}
