// Package proof lets a gateway show a client that it knows the client's token
// before the client sends it. The client names its token by an id that tells
// nothing about it and adds a nonce; the gateway answers with an HMAC over the
// nonce and the address at which the connection reached it. Whoever merely took
// the gateway's port can't make that HMAC, and whoever passes the question on to
// the gateway gets one for another address.
package proof

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// The headers of a question and its answer. Every request of HTTP may carry a
// question, a WebSocket's upgrade too.
const (
	AskHeader    = "Tapgw-Prove" // "<id> <nonce>", in hexadecimal digits
	AnswerHeader = "Tapgw-Proof" // "<proof> <address>"
)

const (
	idBytes    = 8
	nonceBytes = 16
)

// Key is what both sides derive from a token, its SHA-256.
type Key = [sha256.Size]byte

// KeyOf derives the key of a token.
func KeyOf(token string) Key { return sha256.Sum256([]byte(token)) }

// ID names a key in 16 hexadecimal digits, from which neither the key nor its
// token can be found.
func ID(key Key) string {
	sum := sha256.Sum256(key[:])
	return hex.EncodeToString(sum[:idBytes])
}

// ErrMalformed says that a question is not "<id> <nonce>".
var ErrMalformed = fmt.Errorf("%s: want 16 hexadecimal digits that name the token, a space and %d digits of a nonce",
	AskHeader, 2*nonceBytes)

// ParseQuestion reads the value of [AskHeader]. Its error is [ErrMalformed].
func ParseQuestion(s string) (id, nonce string, err error) {
	id, nonce, _ = strings.Cut(s, " ")
	if !isHex(id, idBytes) || !isHex(nonce, nonceBytes) {
		return "", "", ErrMalformed
	}
	return id, nonce, nil
}

func isHex(s string, size int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == size
}

// Answer is the value of [AnswerHeader] for a question that names key and came
// over a connection to address, the [Address] of the gateway's own end of it.
func Answer(key Key, nonce, address string) string {
	return sum(key, nonce, address) + " " + address
}

// sum is the HMAC in hexadecimal digits. Its text begins with a purpose, so that
// it is never the HMAC of anything else.
func sum(key Key, nonce, address string) string {
	mac := hmac.New(sha256.New, key[:])
	_, _ = mac.Write([]byte("tapgw proof 1\n" + nonce + "\n" + address))
	return hex.EncodeToString(mac.Sum(nil))
}

// Address writes an address as both ends of a connection see it: an IPv4 one
// within IPv6 as IPv4, and without a zone, which names an interface of one end only.
// It is "" for nil.
func Address(address net.Addr) string {
	if address == nil {
		return ""
	}
	if tcp, ok := address.(*net.TCPAddr); ok {
		at := tcp.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()).String()
	}
	return address.String()
}

// Question is one that a client asks on one connection.
type Question struct {
	key   Key
	nonce string
}

// NewQuestion makes a question about a token, with a fresh nonce.
func NewQuestion(token string) Question {
	var b [nonceBytes]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return Question{KeyOf(token), hex.EncodeToString(b[:])}
}

// Header is the question's value of [AskHeader].
func (q Question) Header() string { return ID(q.key) + " " + q.nonce }

// ErrNone says that whoever answered did not prove that it knows the token.
var ErrNone = errors.New("it could not prove that it knows the token")

// RelayedError says that a gateway proved that it knows the token, but that
// somebody stands between: the connection reached it at another address.
type RelayedError struct{ Dialled, Reached string }

func (e *RelayedError) Error() string {
	return fmt.Sprintf("it passes connections on: %s was dialled, and the gateway was reached at %s",
		e.Dialled, e.Reached)
}

// Check judges the value of [AnswerHeader] that came over a connection to
// dialled. Its error is [ErrNone] or a [*RelayedError].
func (q Question) Check(answer string, dialled net.Addr) error {
	given, at, _ := strings.Cut(answer, " ")
	if !hmac.Equal([]byte(given), []byte(sum(q.key, q.nonce, at))) {
		return ErrNone
	}
	if mine := Address(dialled); mine != at {
		return &RelayedError{mine, at}
	}
	return nil
}
