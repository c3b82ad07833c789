package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"tapgw/internal/protect"
)

// PermitRead decides whether the gateway or a provider may read a file for the session's model.
// Whether the file is there, its size and how it compares with a text count as reading. path is
// absolute. It asks the rules and gates that also guard the host's own reads. A host without rules
// of its own allows files in the session's directory. The error is one line for the model.
func (s *Session) PermitRead(ctx context.Context, path, why string) error {
	if err := s.rulesOnRead(ctx, path); err != nil {
		return err
	}
	denial := ""
	if s.info.PermitRead != nil {
		denial = s.info.PermitRead(ctx, path, why)
	} else if !protect.Within(protect.Target(path), s.cwd) {
		denial = "this session may read inside " + s.cwd + " only"
	}
	if denial != "" {
		return fmt.Errorf("reading it is denied: %s", denial)
	}
	return mustLead(path)
}

// PermitReadOfPerson is [Session.PermitRead] for files that a person asks the gateway to read: it
// asks rules and gates but not the host. Private files of the gateway are never read.
func (s *Session) PermitReadOfPerson(ctx context.Context, path string) error {
	if err := s.rulesOnRead(ctx, path); err != nil {
		return err
	}
	return mustLead(path)
}

// mustLead denies the reading of a path that leads nowhere, such as a loop of links. It has the
// last word, because it depends on which files are there.
func mustLead(path string) error {
	if _, err := protect.Resolve(path); err != nil {
		return fmt.Errorf("reading it is denied: it can't be told where %s leads", path)
	}
	return nil
}

// rulesOnRead asks all but the host about a read.
func (s *Session) rulesOnRead(ctx context.Context, path string) error {
	for _, name := range []string{filepath.Clean(path), protect.Target(path)} {
		for _, dir := range s.g.privateDirs() {
			if protect.Within(name, dir) {
				return fmt.Errorf(
					"reading it is denied: it lies in %s, where tapgw and the Copilot "+
						"runtime keep tokens and conversations; name a file elsewhere", dir)
			}
		}
	}
	args, err := json.Marshal(map[string]string{"path": path})
	if err != nil {
		return err
	}
	if d := s.PreToolUse(ctx, s.OwnTool("read"), args); d.Deny {
		return fmt.Errorf("reading it is denied: %s", d.Denial())
	}
	return nil
}

// PermitOpen decides about a file that was opened after its path was permitted. It denies a second
// name (a hard link) of a private file of the gateway, which no path shows.
func (s *Session) PermitOpen(file fs.FileInfo) error {
	if protect.HoldsFile(file, s.g.privateDirs()...) {
		return errors.New("reading it is denied: it is another name of a file with tokens " +
			"or conversations; write what you need into a file of its own")
	}
	return nil
}

func (g *Gateway) privateDirs() []string {
	if g.o.Private == nil {
		return nil
	}
	return g.o.Private()
}
