package mcpbridge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"tapgw/providers"
)

const (
	maxFiles     = 100       // that a provider's directory keeps of results
	maxFileBytes = 256 << 20 // all of them together; the oldest go
)

// filesMu guards the files of results: bridges of one provider may share a directory.
var filesMu sync.Mutex

// keeper returns a function that stores bytes of a call's result in a file that the model can open:
// in the provider's directory, by a name that depends only on its content.
func keeper(ctx context.Context) func(mimeType string, data []byte) (string, error) {
	call, _ := providers.CallFrom(ctx)
	return func(mimeType string, data []byte) (string, error) {
		if call.PersistDir == "" {
			return "", errors.New("the provider has no directory")
		}
		filesMu.Lock()
		defer filesMu.Unlock()
		dir := filepath.Join(call.PersistDir, "results")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", fmt.Errorf("making the directory of results: %w", err)
		}
		if err := makeRoom(dir, len(data)); err != nil {
			return "", err
		}
		sum := sha256.Sum256(data)
		name := filepath.Join(dir, hex.EncodeToString(sum[:8])+extension(mimeType))
		if err := renameio.WriteFile(name, data, 0o600, renameio.IgnoreUmask()); err != nil {
			return "", fmt.Errorf("writing %s: %w", name, err)
		}
		return name, nil
	}
}

// extensions are the file extensions of types that have several, or that a machine may not know.
var extensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp",
	"application/pdf": ".pdf",
	"audio/wav":       ".wav", "audio/mpeg": ".mp3", "audio/ogg": ".ogg", "text/plain": ".txt",
	"application/json": ".json",
}

func extension(mimeType string) string {
	if e := extensions[mimeType]; e != "" {
		return e
	}
	if all, _ := mime.ExtensionsByType(mimeType); len(all) > 0 {
		return all[0]
	}
	return ".bin"
}

// makeRoom removes the oldest files of a directory until there is room for one more of so many
// bytes.
func makeRoom(dir string, size int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the directory of results: %w", err)
	}
	type file struct {
		name string
		size int64
		at   time.Time
	}
	var files []file
	total := int64(size)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, file{e.Name(), info.Size(), info.ModTime()})
			total += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name))
	})
	for len(files) > 0 && (len(files) >= maxFiles || total > maxFileBytes) {
		if err := os.Remove(filepath.Join(dir, files[0].name)); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing an old result: %w", err)
		}
		total -= files[0].size
		files = files[1:]
	}
	return nil
}
