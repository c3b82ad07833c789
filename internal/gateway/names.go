package gateway

import (
	"fmt"
	"slices"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// A provider's name has one owner in a session, and a gateway's user may reserve names.

// AdminName is the provider name of an admin's push without a provider's name. No provider but an
// internal one may use it in hello.
const AdminName = "tapctl"

// gatewayNames are the sources of timeline lines that no provider wrote. No provider may
// use one as its name.
var gatewayNames = []string{AdminName, sourceGateway, sourcePairing, SourceUser, SourceAssistant,
	SourceSession}

// IsGatewayName reports whether a provider's name is one of the gateway's own words, in any case,
// so that hello would be refused.
func IsGatewayName(name string) bool { return slices.Contains(gatewayNames, strings.ToLower(name)) }

// ReservedName is a name that only the provider of a provider file may use, in the sessions
// that the file is for, also while the provider does not run. Another provider gets
// UNAUTHORIZED. See docs/protocol.md, "Names".
type ReservedName struct {
	Name  string
	Owner string                      // as PassSpec.Owner
	Match func(adminapi.Session) bool // nil: all sessions. It must not block
}

// ReserveNames replaces all reserved names; nil removes them. A provider that uses one of them now
// keeps it until it binds again. The gateway keeps the slice.
func (g *Gateway) ReserveNames(names []ReservedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reservedNames = names
}

// fileOwner is the name owner of all provider files of one author.
func fileOwner(author string) string { return "files " + author }

// nameOwner is the owner of a provider name in sessions, with the streams and filters of that name.
// It is immutable, and one for all sessions that a provider has.
type nameOwner struct {
	owner    string
	spelling string // as the owner's hello wrote it, "" if that is the name itself
}

// nameOwner makes the identity the owner of a name as its hello wrote it.
func (id *identity) nameOwner(name, spelling string) *nameOwner {
	if spelling == name {
		spelling = ""
	}
	return &nameOwner{id.owner, spelling}
}

// checkName checks whether the identity may use a provider name: the one that a person or a
// provider file approved, or any name if no name was approved. The error is UNAUTHORIZED.
func (id *identity) checkName(name string) *protocol.Error {
	switch {
	case id.Name != "" && id.Name != name:
		return errorf(protocol.CodeUnauthorized,
			"hello.name: %q is not the name that this token is for, which is %q%s", name, id.Name,
			id.otherNameHint)
	case IsGatewayName(name) && id.Trust != TrustInternal:
		return errorf(protocol.CodeUnauthorized,
			"hello.name: %q is a word of the gateway's own in timelines; choose another name", name)
	}
	return nil
}

// checkOwner checks whether an identity may use a provider name in the session. It may
// not while the name is reserved for another identity, or while another one is bound with
// it or has streams of it, except the leaving providers. The error is UNAUTHORIZED. Call
// with Gateway.mu held.
func (s *Session) checkOwner(
	id *identity, name, spelling string, leaving ...*Provider,
) *protocol.Error {
	for _, r := range s.g.reservedNames {
		isReserved := protocol.NormalName(r.Name) == name && fileOwner(r.Owner) != id.owner
		if isReserved && (r.Match == nil || r.Match(s.view())) {
			return s.refuseName(
				"hello.name: %q is the name of a provider file, whose provider alone may use it; "+
					"choose another name, use that file's token, or stop that provider (tapctl "+
					"providers stop)",
				name,
			)
		}
	}
	now, isUsed := s.nameOwners[name], s.isNameUsed(name, leaving)
	switch {
	case !isUsed:
	case now.owner != id.owner:
		return s.refuseName(
			"hello.name: %q belongs to another identity in this session, with its streams, "+
				"as long as it is bound or has some; choose another name",
			name,
		)
	case spelling != name && now.spelling != "" && now.spelling != spelling:
		return s.refuseName(
			"hello.name: %q is %q here, as %q is already; spell it like that, or "+
				"choose another name",
			spelling, name, now.spelling)
	}
	return nil
}

func (s *Session) refuseName(format string, args ...any) *protocol.Error {
	return &protocol.Error{Code: protocol.CodeUnauthorized, SessionID: s.id,
		Message: fmt.Sprintf(format, args...)}
}

// isNameUsed reports whether a name has an owner that is bound with it or has streams of it. The
// leaving providers don't count. Call with Gateway.mu held.
func (s *Session) isNameUsed(name string, leaving []*Provider) bool {
	if now := s.nameOwners[name]; now == nil || now.owner == "" {
		return false
	}
	for _, b := range s.bindings {
		if b.provider.name == name && !slices.Contains(leaving, b.provider) {
			return true
		}
	}
	return s.streams.isOwner(name)
}

// setNameOwner makes an identity the owner of a name in the session, after checkOwner
// allowed it and before the provider is bound. Call with Gateway.mu held.
func (s *Session) setNameOwner(name string, to *nameOwner) {
	now := s.nameOwners[name]
	if now != nil && now.owner == to.owner && now.spelling != "" && s.isNameUsed(name, nil) {
		return // the first spelling stays
	}
	s.nameOwners[name] = to
}

// changedName is the normal form of a name if it is spelled otherwise; else "".
func changedName(spelling string) string {
	if normal := protocol.NormalName(spelling); normal != spelling {
		return normal
	}
	return ""
}
