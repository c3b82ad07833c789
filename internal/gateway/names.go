package gateway

import (
	"cmp"
	"fmt"
	"slices"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// AdminName is the provider's name that pushes of the admin side have where they
// name none.
const AdminName = "tapctl"

// ownNames are the names that the timeline has for what the gateway says and does
// itself, for people, models and sessions, and for pushes of the admin side: a provider
// is never shown as one.
var ownNames = []string{AdminName, sourceGateway, sourcePairing, SourceUser, SourceAssistant, SourceSession}

// ReservedName is a name that a provider file keeps for its own provider, in the sessions
// that it is for, whether that runs or not.
type ReservedName struct {
	Name  string
	Owner string                      // as PassSpec.Owner
	Match func(adminapi.Session) bool // nil: all sessions. It only looks
}

// ReserveNames says which names files keep from now on. Who has one of them already keeps
// it until it is bound anew.
func (g *Gateway) ReserveNames(names []ReservedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reservedNames = names
}

// fileOwner is the owner of names that the files of one author say.
func fileOwner(author string) string { return "files " + author }

// nameOwner is whose a provider's name is in a session, with the streams and the
// filters under it.
type nameOwner struct {
	owner    string
	spelling string // one that is not the name itself, "" for none
}

// checkName reports whether the identity may call itself by a name: by the one
// that a person or a file approved, or by any where nobody did.
func (id *identity) checkName(name string) *protocol.Error {
	switch {
	case id.name != "" && id.name != name:
		return errorf(protocol.CodeUnauthorized, "hello.name: %q is not the name that this token is for, which is %q%s", name, id.name, id.otherNameHint)
	case slices.Contains(ownNames, name) && id.trust != TrustInternal:
		return errorf(protocol.CodeUnauthorized, "hello.name: %q is a word of the gateway's own in timelines; choose another name", name)
	}
	return nil
}

// checkOwner reports whether an identity may use a name in the session: nobody
// else does, or has streams under it, and no file keeps it for its own provider.
// The providers that are going don't count. Call with Gateway.mu held.
func (s *Session) checkOwner(id *identity, name, spelling string, going ...*Provider) *protocol.Error {
	for _, kept := range s.g.reservedNames {
		if protocol.NormalName(kept.Name) == name && fileOwner(kept.Owner) != id.owner && (kept.Match == nil || kept.Match(s.view())) {
			return s.refuseName("hello.name: %q is the name of a provider file, whose provider alone may use it; choose another name, or use that file's token", name)
		}
	}
	now, inUse := s.nameOwners[name], s.nameInUse(name, going)
	switch {
	case !inUse:
	case now.owner != id.owner:
		return s.refuseName("hello.name: %q belongs to another identity in this session, with its streams, as long as it is bound or has some; choose another name", name)
	case spelling != name && now.spelling != "" && now.spelling != spelling:
		return s.refuseName("hello.name: %q is %q here, as %q is already; spell it like that, or choose another name", spelling, name, now.spelling)
	}
	return nil
}

func (s *Session) refuseName(format string, args ...any) *protocol.Error {
	return &protocol.Error{Code: protocol.CodeUnauthorized, SessionID: s.id, Message: fmt.Sprintf(format, args...)}
}

// nameInUse reports whether anybody has taken a name and is bound by it, or has
// streams under it. Call with Gateway.mu held.
func (s *Session) nameInUse(name string, going []*Provider) bool {
	if s.nameOwners[name].owner == "" {
		return false
	}
	if slices.ContainsFunc(s.bindings, func(b *binding) bool { return b.provider.name == name && !slices.Contains(going, b.provider) }) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countStreams(name) > 0
}

// setNameOwner makes a name the identity's in the session, which checkOwner allowed.
// Call with Gateway.mu held, before it is bound.
func (s *Session) setNameOwner(id *identity, name, spelling string) {
	if spelling == name {
		spelling = ""
	}
	if now := s.nameOwners[name]; now.owner == id.owner && s.nameInUse(name, nil) {
		spelling = cmp.Or(now.spelling, spelling)
	}
	s.nameOwners[name] = nameOwner{id.owner, spelling}
}

// unlike is a name as it is known, where it was spelled otherwise; else "".
func changedName(spelled string) string {
	if normal := protocol.NormalName(spelled); normal != spelled {
		return normal
	}
	return ""
}
