package checkpoint

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// This file reads and appends the journal of a workspace, and stores contents by their hashes.

// Types of the journal's lines.
const (
	typeHeader = "checkpoints" // the first line
	typeEdit   = "edit"        // noted before an edit is made
	typeVoid   = "void"        // the edit with this ID was not made
	typeUndo   = "undo"        // noted after turns were undone
	typeRedo   = "redo"        // noted after the last undo was taken back
)

// version is the version of the journal's format.
const version = 1

// record is a line of the journal.
type record struct {
	Type         string    `json:"type"`
	Version      int       `json:"version,omitzero"`   // of a header
	Workspace    string    `json:"workspace,omitzero"` // of a header, for people
	ID           string    `json:"id,omitzero"`
	Conversation string    `json:"conversation,omitzero"`
	Turn         int       `json:"turn,omitzero"`
	Turns        []int     `json:"turns,omitzero"` // of an undo or redo
	At           time.Time `json:"at,omitzero"`
	Files        []file    `json:"files,omitzero"` // of an edit
	Moves        []move    `json:"moves,omitzero"` // of an undo or redo
	// directories that were made, the outermost first
	Dirs []string `json:"dirs,omitzero"`
}

// file is one file's part of an edit. Was and Now are hashes of contents, "" for no file.
type file struct {
	Path    string      `json:"path"`
	Was     string      `json:"was,omitzero"`
	Mode    fs.FileMode `json:"mode,omitzero"` // of the file before
	Now     string      `json:"now,omitzero"`
	Unknown bool        `json:"unknown,omitzero"` // the old content is not kept
	Added   int         `json:"added,omitzero"`
	Removed int         `json:"removed,omitzero"`
}

// move brings a file from one content to another, as an undo or a redo does. The modes belong to
// the two contents.
type move struct {
	Path     string      `json:"path"`
	From     string      `json:"from,omitzero"`
	FromMode fs.FileMode `json:"fromMode,omitzero"`
	To       string      `json:"to,omitzero"`
	ToMode   fs.FileMode `json:"toMode,omitzero"`
}

func (m move) reversed() move {
	return move{Path: m.Path, From: m.To, FromMode: m.ToMode, To: m.From, ToMode: m.FromMode}
}

func (w *Workspace) journal() string { return filepath.Join(w.dir, "journal.jsonl") }

// append adds a line to the journal and waits until it is on the disk. The caller has the lock.
func (w *Workspace) append(r record) (err error) {
	f, err := os.OpenFile(w.journal(), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("noting the edit: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := wholeSize(f)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil { // a line that a process did not finish
		return fmt.Errorf("noting the edit: %w", err)
	}
	var line []byte
	if size == 0 {
		line = marshal(record{Type: typeHeader, Version: version, Workspace: w.root})
	}
	if _, err := f.Write(append(line, marshal(r)...)); err != nil {
		return errors.Join(fmt.Errorf("noting the edit: %w", err), f.Truncate(size))
	}
	return f.Sync()
}

func marshal(r record) []byte {
	line, err := json.Marshal(r)
	if err != nil { // can't happen: it has only strings, numbers and times
		panic(err)
	}
	return append(line, '\n')
}

// wholeSize returns the size of a file's whole lines.
func wholeSize(f *os.File) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 4096)
	for size > 0 {
		n := min(size, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], size-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return size - n + int64(i) + 1, nil
		}
		size -= n
	}
	return 0, nil
}

// load reads the journal. The error names the line that can't be read. A missing journal is an
// empty one.
func (w *Workspace) load() ([]record, error) {
	f, err := os.Open(w.journal())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journal of edits: %w", err)
	}
	defer f.Close()
	var list []record
	in := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return list, nil // text after the last line end is a line that a process did not finish
		}
		var r record
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		if err == nil && r.Type == typeHeader && r.Version > version {
			err = fmt.Errorf("it has version %d of a later program", r.Version)
		}
		if err != nil {
			return nil,
				fmt.Errorf("%s line %d can't be read: %w; move the file away to keep edits again, "+
					"without those in it", f.Name(), n, err)
		}
		list = append(list, r)
	}
}

func hashOf(content *string) string {
	if content == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(*content))
	return hex.EncodeToString(sum[:])
}

func (w *Workspace) object(hash string) string { return filepath.Join(w.dir, "objects", hash) }

// put keeps a content and returns its hash. The caller has the lock.
func (w *Workspace) put(content string) (hash string, err error) {
	hash = hashOf(&content)
	path := w.object(hash)
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(content)) {
		return hash, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return hash, err
}

// get returns a kept content; nil stands for the hash "".
func (w *Workspace) get(hash string) (*string, error) {
	if hash == "" {
		return nil, nil
	}
	data, err := os.ReadFile(w.object(hash))
	if err != nil {
		return nil, err
	}
	content := string(data)
	if hashOf(&content) != hash {
		return nil, fmt.Errorf("what was kept of it is damaged")
	}
	return &content, nil
}
