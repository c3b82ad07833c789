package supervisor

import (
	"context"
	"path/filepath"

	"tapgw/internal/proc"
)

// runConnect lets a provider in that starts itself: its token lies in a file of
// its own.
func (s *Supervisor) runConnect(ctx context.Context, r Run) error {
	if err := proc.PrivateDir(s.o.TokenDir); err != nil {
		return err
	}
	file := filepath.Join(s.o.TokenDir, r.Provider.Name+".token")
	// The version before this one may be removing its token just now.
	s.tokens.Lock()
	err := proc.WritePrivate(file, []byte(r.Token))
	s.tokens.Unlock()
	if err != nil {
		return err
	}
	<-ctx.Done()
	s.tokens.Lock()
	defer s.tokens.Unlock()
	proc.RemoveOwn(file, []byte(r.Token))
	return nil
}
