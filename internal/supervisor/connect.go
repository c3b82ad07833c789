package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/configs"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/proc"
)

// A provider that starts itself has its token from a file, and may have read it long
// ago: the token stays the same, over versions of the provider's file and restarts of
// the gateway, until the provider's file is deleted, or the token's.

const tokenSuffix = ".token"

func (s *Supervisor) tokenFile(name string) string {
	return filepath.Join(s.o.TokenDir, name+tokenSuffix)
}

var connectToken = lazyregexp.New(`^ptk-[0-9a-f]{32}$`)

// connectToken reads the token that a provider has from before; "" for none.
func (s *Supervisor) connectToken(name string) string {
	data, err := os.ReadFile(s.tokenFile(name))
	if err != nil || !connectToken.MatchString(string(data)) {
		return ""
	}
	return string(data)
}

// runConnect lets a provider in that starts itself: its token lies in a file of
// its own.
func (s *Supervisor) runConnect(ctx context.Context, r Run) error {
	if err := s.writeToken(ctx, r); err != nil {
		return err
	}
	<-ctx.Done()
	if r.Provider.Project != "" { // it is nobody else's of the name, later
		s.tokenLock.Lock()
		defer s.tokenLock.Unlock()
		proc.RemoveOwn(s.tokenFile(r.Provider.Name), []byte(r.Token))
	}
	return nil
}

func (s *Supervisor) writeToken(ctx context.Context, r Run) error {
	if err := proc.PrivateDir(s.o.TokenDir); err != nil {
		return err
	}
	s.tokenLock.Lock()
	defer s.tokenLock.Unlock()
	if ctx.Err() != nil { // the version after this one may have written its own
		return nil
	}
	return proc.WritePrivate(s.tokenFile(r.Provider.Name), []byte(r.Token))
}

// removeStaleTokens removes the token files of providers that no file is for any more. Where
// a directory can't be read nobody knows which they are. The loop calls it.
func (s *Supervisor) removeStaleTokens() {
	if slices.ContainsFunc(s.files, func(f configs.ProviderFile) bool { return f.Name == "" }) {
		return
	}
	s.tokenLock.Lock()
	defer s.tokenLock.Unlock()
	entries, err := os.ReadDir(s.o.TokenDir)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			s.o.Log.Warn("looking for tokens of providers that are gone", "error", err)
		}
		return
	}
	for _, e := range entries {
		name, isToken := strings.CutSuffix(e.Name(), tokenSuffix)
		if !isToken || slices.ContainsFunc(s.files, func(f configs.ProviderFile) bool {
			p, usable := s.usable[f.File]
			return f.Name == name && (!usable || p.Kind == configs.KindConnect)
		}) {
			continue
		}
		if err := os.Remove(filepath.Join(s.o.TokenDir, e.Name())); err != nil {
			s.o.Log.Warn("removing the token of a provider that is gone", "provider", name, "error", err)
		}
	}
}
