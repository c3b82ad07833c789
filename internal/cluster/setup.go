package cluster

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tapgw/internal/protocol"
)

// This file keeps the declared state of a provider of all sessions, so that a gateway that comes
// later gets it too.

// maxSetup bounds the bytes of updates that are kept for gateways that come later.
const maxSetup = 4 << 20

// ownRequest begins the request ids of messages that the relay sends for the provider, whose
// answers it takes.
const ownRequest = "cluster-setup-"

func isOwnRequest(id string) bool { return strings.HasPrefix(id, ownRequest) }

// setup is the state that a provider of all sessions has declared: its hello and the updates since.
type setup struct {
	hello   []byte
	updates []update
	size    int
}

type update struct {
	kind protocol.Type
	data []byte
}

// add keeps an update of all sessions. It drops the ones before that it replaces.
func (s *setup) add(a about, data []byte) {
	isWhole := false
	switch a.kind {
	case protocol.TypeContextUpdate:
		isWhole = true
	case protocol.TypeToolsUpdate:
		isWhole = !hasMember(data, "remove")
	case protocol.TypeHooksUpdate, protocol.TypeFilterSet:
	default:
		return
	}
	if a.session != "" || s.hello == nil {
		return
	}
	if isWhole {
		s.updates = slices.DeleteFunc(s.updates, func(u update) bool {
			if u.kind == a.kind {
				s.size -= len(u.data)
			}
			return u.kind == a.kind
		})
	}
	if s.size+len(data) > maxSetup {
		return
	}
	s.updates, s.size = append(s.updates, update{a.kind, data}), s.size+len(data)
}

func hasMember(data []byte, member string) (has bool) {
	_ = protocol.Object(data, func(name string, value protocol.Raw) error {
		has = has || name == member && value.Kind() != 'n'
		return nil
	})
	return has
}

// frames are the messages that bring a gateway up to date, each update with a request id of the
// relay's.
func (s *setup) frames() [][]byte {
	frames := [][]byte{s.hello}
	for i, u := range s.updates {
		frames = append(frames, withRequestID(u.data, fmt.Sprintf("%s%d", ownRequest, i)))
	}
	return frames
}

// renewed is the setup of a provider that comes back with a hello. Fields that the hello leaves out
// stay as before.
func (s *setup) renewed(hello []byte) setup {
	now := setup{hello: hello}
	if s.hello == nil {
		return now
	}
	for member, kind := range map[string]protocol.Type{
		"tools": protocol.TypeToolsUpdate, "hooks": protocol.TypeHooksUpdate,
		"context": protocol.TypeContextUpdate, "startup_context": "", "metadata": "",
		"subscribe": "", "concurrency": "",
	} {
		if hasMember(hello, member) {
			continue
		}
		_ = protocol.Object(s.hello, func(name string, value protocol.Raw) error {
			if name == member {
				now.hello = withMembers(now.hello, name, value)
			}
			return nil
		})
		for _, u := range s.updates {
			if kind != "" && u.kind == kind {
				now.updates, now.size = append(now.updates, u), now.size+len(u.data)
			}
		}
	}
	return now
}

// withRequestID replaces the request id of a message.
func withRequestID(data []byte, id string) []byte { return withMember(data, "requestId", id) }

// withMember replaces a member of a message by a text.
func withMember(data []byte, member, text string) []byte {
	quoted, _ := jsontext.AppendQuote(nil, text) // cannot fail
	return withMembers(data, member, quoted)
}

// withMembers replaces a member of a message.
func withMembers(data []byte, member string, value protocol.Raw) []byte {
	var b bytes.Buffer
	add := func(name string, value protocol.Raw) {
		key, _ := jsontext.AppendQuote(nil, name) // invalid UTF-8 was refused before
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('{')
	add(member, value)
	_ = protocol.Object(data, func(name string, value protocol.Raw) error {
		if name != member {
			b.WriteByte(',')
			add(name, value)
		}
		return nil
	})
	b.WriteByte('}')
	return b.Bytes()
}
