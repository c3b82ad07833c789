package assembly

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
	"tapgw/internal/sources"
	"tapgw/internal/taptools"
)

// emitters runs the emitters that the models of sessions start, as sources. sessionEmitters
// implements [taptools.Emitters] with it for one session.
type emitters struct {
	gateway *gateway.Gateway
	set     *sources.Set
	record  func(adminapi.Record)
	files   configs.Files
	listed  func() []adminapi.Source // all sources, also those of files
}

type sessionEmitters struct {
	*emitters

	session string
}

var _ taptools.Emitters = sessionEmitters{}

// Run implements [taptools.Emitters]. A run does not outlive the gateway, because the session's
// tools end with it.
func (e sessionEmitters) Run(
	ctx context.Context, p *configs.Provider, line func(from, line string),
	ended func(failure string),
) error {
	pass := e.gateway.Issue(gateway.PassSpec{
		Trust: gateway.TrustProject, Session: e.session, Name: p.Name, Owner: taptools.Name,
		Own: true, Model: true,
	})
	defer pass.Revoke()
	return e.set.Run(ctx, sources.Options{
		Provider: p, Gateway: sourceGateway{e.gateway}, Token: pass.Token(), Session: e.session,
		Dir:  p.CWD,
		Env:  func() []string { return proc.Environ(nil) },
		Line: line, Faults: func(lines []string) {
			for _, l := range lines {
				line("tapgw", l)
			}
		},
		Check: func() error { // a directory may have become a link since the command was permitted
			if at, err := filepath.EvalSymlinks(p.CWD); err != nil || at != p.CWD {
				return fmt.Errorf("cwd: %s is not the directory any more that it was at the start",
					p.CWD)
			}
			return nil
		},
		Record: func(r adminapi.Record) {
			e.record(r)
			ended(r.Reason)
		},
	})
}

// SetFilter implements [taptools.Emitters].
func (e sessionEmitters) SetFilter(
	name string, filter []configs.FilterRule, level string,
) (bool, error) {
	return e.set.SetFilter(e.session, name, filter, level)
}

// Counts implements [taptools.Emitters].
func (e sessionEmitters) Counts(name string) (accepted, dropped int) {
	return e.set.Counts(e.session, name)
}

// Sources implements [taptools.Emitters].
func (e sessionEmitters) Sources() (list []adminapi.Source) {
	for _, s := range e.listed() {
		if s.Session == e.session || s.Session == protocol.AllSessions || s.File != "" &&
			s.Session == "" {
			list = append(list, s)
		}
	}
	return list
}

// Try implements [taptools.Emitters].
func (e sessionEmitters) Try(
	p *configs.Provider, rows []adminapi.StreamRow,
) (map[string]int, error) {
	events, err := sources.TryFilter(*p, rows)
	counts := map[string]int{}
	for _, event := range events {
		counts[event.Outcome]++
	}
	return counts, err
}

// savedHeader begins a provider file that a model asked for.
const savedHeader = "# The model of a session asked for this source, and a person allowed it.\n"

// Save implements [taptools.Emitters].
func (e sessionEmitters) Save(name string, text []byte) (string, error) {
	file, err := e.files.UserProvider(name)
	if err != nil {
		return "", err
	}
	err = proc.WriteNew(file, append([]byte(savedHeader), text...))
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("a provider file has the name %q: choose another", name)
	}
	return file, err
}

// Remove implements [taptools.Emitters].
func (e sessionEmitters) Remove(name string) error {
	file, err := e.files.UserProvider(name)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file) //nolint:gosec // a provider file of the user
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no file defines %q", name)
	case err != nil:
		return err
	case !bytes.HasPrefix(data, []byte(strings.TrimSuffix(savedHeader, "\n"))):
		return fmt.Errorf(
			"a person wrote the file of %q, and only a person removes it: tapctl sources show %s",
			name,
			name,
		)
	}
	return os.Remove(file)
}
