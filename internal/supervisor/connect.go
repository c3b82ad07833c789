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

// A provider that starts itself reads its token from a file, possibly long before it connects. So
// the token stays the same when the provider's file changes and when the gateway restarts, until
// the provider's file or the token's file is deleted.

const tokenSuffix = ".token"

func (s *Supervisor) tokenFile(name string) string {
	return filepath.Join(s.o.TokenDir, name+tokenSuffix)
}

var connectToken = lazyregexp.New(`^ptk-[0-9a-f]{32}$`)

// connectToken reads the token that a provider already has; "" if it has no token yet.
func (s *Supervisor) connectToken(name string) string {
	data, err := os.ReadFile(s.tokenFile(name))
	if err != nil || !connectToken.MatchString(string(data)) {
		return ""
	}
	return string(data)
}

// runConnect lets in a provider that starts itself. It writes the provider's token to a file.
func (s *Supervisor) runConnect(ctx context.Context, r *Run) error {
	if err := s.writeToken(ctx, r); err != nil {
		return err
	}
	<-ctx.Done()
	if r.Provider.Project != "" { // another project's provider of this name must not get the token
		s.tokenLock.Lock()
		defer s.tokenLock.Unlock()
		proc.RemoveOwn(s.tokenFile(r.Provider.Name), []byte(r.Token))
	}
	return nil
}

func (s *Supervisor) writeToken(ctx context.Context, r *Run) error {
	if err := proc.PrivateDir(s.o.TokenDir); err != nil {
		return err
	}
	s.tokenLock.Lock()
	defer s.tokenLock.Unlock()
	if ctx.Err() != nil { // the next version may have written its token already
		return nil
	}
	return proc.WritePrivate(s.tokenFile(r.Provider.Name), []byte(r.Token))
}

// removeStaleTokens removes the token files of providers that no file names any more. It removes
// nothing while a directory of provider files can't be read. The loop calls it.
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
			p, usable := s.usable[fileKeyOf(f)]
			return f.Name == name && (!usable || p.StartsItself())
		}) {
			continue
		}
		if err := os.Remove(filepath.Join(s.o.TokenDir, e.Name())); err != nil {
			s.o.Log.Warn("removing the token of a provider that is gone", "provider", name, "error",
				err)
		}
	}
}
