package lsp

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"tapgw/tools"
	"tapgw/tools/internal/program"
)

// Own is a language server of the user's.
type Own tools.LanguageServer

// made has the languages that were made of Own values. Equal values get the same language, so that
// a [Pool] finds its server again.
var made struct {
	mu     sync.Mutex // guards the fields below
	byText map[string]*Language
}

// With returns [Languages] with the user's own before them. An own server replaces the servers that
// have one of its endings.
func With(own []tools.LanguageServer) []*Language {
	var all []*Language
	for _, o := range own {
		all = append(all, Own(o).language())
	}
	taken := slices.Clone(all)
	for _, l := range Languages {
		if !slices.ContainsFunc(taken, l.overlaps) {
			all = append(all, l)
		}
	}
	return all
}

// overlaps reports whether a file can be in both languages.
func (l *Language) overlaps(other *Language) bool {
	for ending := range l.suffixes {
		if other.suffixes[ending] != "" {
			return true
		}
	}
	return false
}

func (o Own) language() *Language {
	text, err := json.Marshal(o)
	if err != nil { // can't happen: the value has only strings
		panic(err)
	}
	made.mu.Lock()
	defer made.mu.Unlock()
	l := made.byText[string(text)]
	if l == nil {
		l = &Language{Name: o.Name, Server: o.Command[0], args: o.Command[1:],
			suffixes: o.Languages}
		if made.byText == nil {
			made.byText = map[string]*Language{}
		}
		made.byText[string(text)] = l
	}
	return l
}

// Of returns the language of a file among all, by its ending, or nil if no language has the ending.
// The file need not exist.
func Of(all []*Language, path string) *Language {
	for _, l := range all {
		if l.Has(path) {
			return l
		}
	}
	return nil
}

// find returns the path of the server's program.
func (l *Language) find(workspace string) (string, error) {
	if filepath.IsAbs(l.Server) { // the user's config has an absolute path
		return exec.LookPath(l.Server)
	}
	return program.Find(l.Server, workspace)
}
