// Package proof lets a gateway show a client that it knows the client's token before the client sends
// the token (docs/adr/0016-proof-before-token.md). The client sends an id of its token, from which the
// token can't be found, and a nonce. The gateway answers with an HMAC over the nonce and the address at
// which the connection reached it. A program that took the gateway's port can't make that HMAC, and one
// that relays the question to the gateway gets the HMAC for another address.
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

// The headers of a question and its answer. Every HTTP request may have a question, also one for a
// WebSocket.
const (
	AskHeader    = "Tapgw-Prove" // "<id> <nonce>", in hexadecimal digits
	AnswerHeader = "Tapgw-Proof" // "<proof> <address>"
)

const (
	idBytes    = 8
	nonceBytes = 16
)

// Key is the SHA-256 of a token, which both sides know.
type Key = [sha256.Size]byte

// KeyOf derives the key of a token.
func KeyOf(token string) Key { return sha256.Sum256([]byte(token)) }

// ID names a key in 16 hexadecimal digits, from which neither the key nor its
// token can be found.
func ID(key Key) string {
	sum := sha256.Sum256(key[:])
	return hex.EncodeToString(sum[:idBytes])
}

// ErrMalformed is the error of a question that is not "<id> <nonce>".
var ErrMalformed = fmt.Errorf("%s: want 16 hexadecimal digits that name the token, a space and %d digits of a nonce",
	AskHeader, 2*nonceBytes)

// ParseQuestion splits the value of [AskHeader]. Its error is [ErrMalformed].
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

// Answer returns the value of [AnswerHeader] for a question that names key. address is the [Address] of
// the gateway's end of the connection that the question came over.
func Answer(key Key, nonce, address string) string {
	return mac(key, nonce, address) + " " + address
}

// mac returns the HMAC in hexadecimal digits. Its text begins with a purpose, so that it is valid for
// nothing else.
func mac(key Key, nonce, address string) string {
	h := hmac.New(sha256.New, key[:])
	_, _ = h.Write([]byte("tapgw proof 1\n" + nonce + "\n" + address))
	return hex.EncodeToString(h.Sum(nil))
}

// Address returns an address as both ends of a connection write it: IPv4 within IPv6 as IPv4, and without
// a zone, which names an interface of one end only. For nil it is "".
func Address(address net.Addr) string {
	if address == nil {
		return ""
	}
	if tcp, ok := address.(*net.TCPAddr); ok {
		addr := tcp.AddrPort()
		return netip.AddrPortFrom(addr.Addr().Unmap().WithZone(""), addr.Port()).String()
	}
	return address.String()
}

// Question is what a client asks on one connection.
type Question struct {
	key   Key
	nonce string
}

// NewQuestion makes a question about a token, with a fresh nonce.
func NewQuestion(token string) Question {
	var b [nonceBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return Question{KeyOf(token), hex.EncodeToString(b[:])}
}

// Header returns the value of [AskHeader].
func (q Question) Header() string { return ID(q.key) + " " + q.nonce }

// ErrUnproven is the error of an answer, or of none, that does not prove knowledge of the token.
var ErrUnproven = errors.New("it could not prove that it knows the token")

// RelayedError is the error of a proof that is right for another address: the gateway knows the token,
// but another program relays the connection.
type RelayedError struct{ Dialled, Reached string } // host:port

// Error implements error. It names the address that was dialled and the one that was reached.
func (e *RelayedError) Error() string {
	return fmt.Sprintf("it passes connections on: %s was dialled, and the gateway was reached at %s",
		e.Dialled, e.Reached)
}

// Check checks the value of [AnswerHeader] that came over a connection to dialled. Its error is
// [ErrUnproven] or a [*RelayedError].
func (q Question) Check(answer string, dialled net.Addr) error {
	given, reached, _ := strings.Cut(answer, " ")
	if !hmac.Equal([]byte(given), []byte(mac(q.key, q.nonce, reached))) {
		return ErrUnproven
	}
	if dialledAt := Address(dialled); dialledAt != reached {
		return &RelayedError{dialledAt, reached}
	}
	return nil
}
