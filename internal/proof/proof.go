// Package proof lets a gateway show a client that it knows the client's token before the client
// sends the token (docs/adr/0016-proof-before-token.md). The client sends an id of its token, from
// which the token can't be found, and a nonce. The gateway answers with an HMAC over the nonce and
// the address at which the connection reached it. A program that took the gateway's port can't make
// that HMAC, and one that relays the question to the gateway gets the HMAC for another address.
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

// The headers of a question and of its answer (docs/protocol.md, Is it your gateway?). Every HTTP
// request may have a question, also one that opens a WebSocket. Id, nonce and proof are in
// hexadecimal digits.
const (
	AskHeader    = "Tapgw-Prove" // "<id> <nonce>", in hexadecimal digits
	AnswerHeader = "Tapgw-Proof" // "<proof> <address>"
)

const (
	idBytes    = 8
	nonceBytes = 16
)

// Key is the SHA-256 of a token, which both sides know. Keep it as secret as the token, because
// whoever has it can make proofs.
type Key = [sha256.Size]byte

// KeyOf returns the key of a token. The token must be exactly the text that both sides have,
// without blanks around it.
func KeyOf(token string) Key { return sha256.Sum256([]byte(token)) }

// ID returns 16 hexadecimal digits that name a key: the first 8 bytes of the key's SHA-256. Neither
// the key nor its token can be found from them, so a client may send them to any program.
func ID(key Key) string {
	sum := sha256.Sum256(key[:])
	return hex.EncodeToString(sum[:idBytes])
}

// ErrMalformed is the error of a question that is not "<id> <nonce>". Its text says the right form
// and has nothing of the question, so that it may go to a client.
var ErrMalformed = fmt.Errorf(
	"%s: want 16 hexadecimal digits that name the token, a space and %d digits of a nonce",
	AskHeader, 2*nonceBytes)

// ParseQuestion splits the value of [AskHeader] into the id of a key (16 hexadecimal digits) and a
// nonce (32). The gateway calls it. The error is [ErrMalformed], also for an empty value.
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

// Answer returns the value of [AnswerHeader] for a question that names key. nonce is the
// question's. address is the [Address] of the gateway's own end of the connection over which the
// question came.
func Answer(key Key, nonce, address string) string {
	return mac(key, nonce, address) + " " + address
}

// mac returns the HMAC in hexadecimal digits. Its text begins with a purpose, so that it is valid
// for nothing else.
func mac(key Key, nonce, address string) string {
	h := hmac.New(sha256.New, key[:])
	_, _ = h.Write([]byte("tapgw proof 1\n" + nonce + "\n" + address))
	return hex.EncodeToString(h.Sum(nil))
}

// Address returns an address in the form in which both ends of a connection write it: IPv4 within
// IPv6 as IPv4, and without a zone, which names an interface of one end only. For nil it is "".
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

// Question is what a client asks on one connection: which token it has, and a nonce that no other
// question has. Use it for one connection only, since an answer is good for its nonce.
type Question struct {
	key   Key
	nonce string
}

// NewQuestion makes a question about a token, with a fresh random nonce of 16 bytes. It stores only
// the token's key, and sends nothing.
func NewQuestion(token string) Question {
	var b [nonceBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return Question{KeyOf(token), hex.EncodeToString(b[:])}
}

// Header returns the value of [AskHeader]: the id of the token's key, a space, and the nonce, in 49
// characters.
func (q Question) Header() string { return ID(q.key) + " " + q.nonce }

// ErrUnproven is the error of [Question.Check] for an answer that is empty or does not prove
// knowledge of the token: another program listens there, or the gateway has another token.
var ErrUnproven = errors.New("it could not prove that it knows the token")

// RelayedError is the error of a proof that is right for another address than the dialled one: the
// gateway knows the token, but another program, for example a tunnel, relays the connection.
type RelayedError struct{ Dialled, Reached string } // host:port

// Error implements error. It names the address that was dialled and the one that was reached.
func (e *RelayedError) Error() string {
	return fmt.Sprintf(
		"it passes connections on: %s was dialled, and the gateway was reached at %s",
		e.Dialled, e.Reached)
}

// Check checks the value of [AnswerHeader] that came over a connection to dialled, the address of
// its other end. The error is [ErrUnproven] or a [*RelayedError]; only after nil may the client
// send its token.
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
