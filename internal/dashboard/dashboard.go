// Package dashboard is the page on which a person watches sessions, providers and events, and
// answers questions (docs/page.md). Its files in page/ are embedded as they are and served
// minified: there is no build step, and they load nothing from elsewhere. The page uses the admin
// API, with the cookie of a sign-in.
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/tdewolff/minify/v2"
	"github.com/tdewolff/minify/v2/css"
	"github.com/tdewolff/minify/v2/js"
)

//go:embed page
var files embed.FS

// document is the file that is served at /. All others are served below /page/.
const document = "page/index.html"

// policy is the page's Content-Security-Policy. It allows the page's own files and its own gateway,
// and forbids scripts to make markup or code from text; the one policy for Trusted Types is for the
// address of the worker, which tries filters. The guard refuses service workers.
const policy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; " +
	"connect-src 'self'; " +
	"img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types tapgw"

// types are the content types by extension. Systems have different lists of their own.
var types = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file is a file as it is sent.
type file struct {
	kind          string
	plain, packed variant
}

// variant is a file's content in one encoding.
type variant struct {
	content []byte
	tag     string // ETag
}

// Handler serves the page: its document at /, the other files below /page/, each with an ETag, and
// compressed for those who take that. Browsers must revalidate, so that a new gateway's page is
// used at once.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := served()[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache")
		h.Set("Vary", "Accept-Encoding")
		v := f.plain
		if takesGzip(r) {
			v = f.packed
			h.Set("Content-Encoding", "gzip")
		}
		h.Set("ETag", v.tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(v.content))
	})
}

// takesGzip reports whether the client takes an answer that is compressed with gzip.
func takesGzip(r *http.Request) bool {
	for encoding := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","),
		",") {
		name, weight, _ := strings.Cut(encoding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return strings.Trim(weight, " q=0.") != "" || strings.TrimSpace(weight) == ""
		}
	}
	return false
}

// served reads the files at the first request. Most gateways never see a browser: read at the
// start, the files would stay in the memory of each.
var served = sync.OnceValue(func() map[string]file {
	all, err := read(files)
	if err != nil {
		panic(err) // the files are part of the program
	}
	return all
})

// read returns the files by the paths at which they are served, in fewer scripts and minified:
// comments and long names are for developers, and would be a quarter of the bytes that a browser
// loads.
func read(from fs.FS) (map[string]file, error) {
	contents, scripts := map[string]string{}, map[string]string{}
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(from, name)
		if module, ok := strings.CutSuffix(path.Base(name), ".js"); ok {
			scripts[module] = string(content)
		} else {
			contents[name] = string(content)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if scripts, err = bundle(scripts); err != nil {
		return nil, err
	}
	for module, script := range scripts {
		contents["page/"+module+".js"] = script
	}

	served := map[string]file{}
	small := minify.New()
	small.AddFunc(".css", css.Minify)
	small.AddFunc(".js", js.Minify)
	packer, err := gzip.NewWriterLevel(nil, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	for name, text := range contents {
		kind, ok := types[path.Ext(name)]
		if !ok {
			return nil, fmt.Errorf("dashboard: %s has no content type", name)
		}
		content, err := small.Bytes(path.Ext(name), []byte(text))
		if err != nil && !errors.Is(err, minify.ErrNotExist) {
			return nil, fmt.Errorf("dashboard: %s: %w", name, err)
		}
		packed, err := pack(packer, content)
		if err != nil {
			return nil, err
		}
		at := "/" + name
		if name == document {
			at = "/"
		}
		served[at] = file{kind, newVariant(content), newVariant(packed)}
	}
	return served, nil
}

func newVariant(content []byte) variant {
	sum := sha256.Sum256(content)
	return variant{content, `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// pack compresses with gzip.
func pack(w *gzip.Writer, content []byte) ([]byte, error) {
	var packed bytes.Buffer
	w.Reset(&packed)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err := w.Close() // it writes the rest
	return packed.Bytes(), err
}
