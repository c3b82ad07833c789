package chat

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"unicode/utf8"

	"tapgw/internal/langserver"
	"tapgw/tools/builtin"
)

// Limits of files that go along with a prompt.
const (
	maxAttached = 256 << 10 // bytes of a text, and of all texts of a prompt
	maxImage    = 3 << 20   // bytes of an image
	maxImages   = 5
)

// named is a file that a prompt names.
type named struct {
	path   string
	quoted bool // as @"a b.txt": it must be a file
}

// namedFiles returns the files that a prompt names with @: @path, or @"path" for a path with
// spaces. An @ within a word, as in an address, does not name a file.
func namedFiles(prompt string) (files []named) {
	before := ' '
	for i := 0; i < len(prompt); {
		r, size := utf8.DecodeRuneInString(prompt[i:])
		i += size
		if r != '@' || !strings.ContainsRune(" \t\n(", before) {
			before = r
			continue
		}
		before = r
		rest := prompt[i:]
		if inner, ok := strings.CutPrefix(rest, `"`); ok {
			if end := strings.IndexAny(inner, "\"\n"); end > 0 && inner[end] == '"' {
				files = append(files, named{inner[:end], true})
				i += end + 2
				continue
			}
		}
		end := strings.IndexAny(rest, " \t\n")
		if end < 0 {
			end = len(rest)
		}
		if end > 0 {
			files = append(files, named{path: rest[:end]})
			i += end
		}
	}
	return files
}

// attach reads the files that a prompt names. Texts come after the prompt, each with its path;
// images are returned. A word with @ that is no file is left alone. A file outside the workspace
// needs consent.
func (c *chat) attach(ctx context.Context, prompt string) (string, []langserver.Image, error) {
	var texts strings.Builder
	var images []langserver.Image
	seen := map[string]bool{}
	env := c.workspace.Env()
	c.agent.Policy.Guard(env)
	for _, f := range namedFiles(prompt) {
		name, data, err := f.read(func(path string) ([]byte, error) {
			return builtin.ReadFile(ctx, env, path)
		})
		switch {
		case errors.Is(err, fs.ErrNotExist) && !f.quoted:
			continue // an @name of a person
		case err != nil:
			return "", nil, fmt.Errorf("@%s: %w", f.path, err)
		case seen[name]:
			continue
		}
		seen[name] = true
		if kind := imageType(data); kind != "" {
			if len(data) > maxImage || len(images) == maxImages {
				return "", nil,
					fmt.Errorf("@%s: %d images of at most %d MiB go along with a prompt", name,
						maxImages, maxImage>>20)
			}
			images = append(images, langserver.Image{MIME: kind, Data: data})
			continue
		}
		if strings.ContainsRune(string(data[:min(len(data), 8000)]), 0) {
			return "", nil, fmt.Errorf("@%s is neither a text nor a png, jpeg, gif or webp image",
				name)
		}
		if texts.Len()+len(data) > maxAttached {
			return "", nil,
				fmt.Errorf("@%s: the files of a prompt are larger than %d KiB: name it without @, "+
					"and the model reads what it needs", name, maxAttached>>10)
		}
		fmt.Fprintf(&texts, "\n\n<file path=%q>\n%s\n</file>", name,
			strings.TrimSuffix(string(data), "\n"))
	}
	return prompt + texts.String(), images, nil
}

// read reads the file, if need be without the punctuation that follows its path in a sentence.
func (f named) read(file func(path string) ([]byte, error)) (path string, data []byte, err error) {
	data, err = file(f.path)
	short := strings.TrimRight(f.path, ".,;:!?)")
	if errors.Is(err, fs.ErrNotExist) && !f.quoted && short != f.path && short != "" {
		if data, err := file(short); err == nil {
			return short, data, nil
		}
	}
	return f.path, data, err
}

// imageType returns the type of an image that models see; "" if the file is not such an image.
func imageType(data []byte) string {
	switch kind := http.DetectContentType(data); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return kind
	}
	return ""
}
