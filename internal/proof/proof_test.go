package proof_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"tapgw/internal/proof"
)

func at(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }

func TestCheck(t *testing.T) {
	const token = "ptk-0123"
	q := proof.NewQuestion(token)
	id, nonce, err := proof.ParseQuestion(q.Header())
	if err != nil || id != proof.ID(proof.KeyOf(token)) {
		t.Fatalf(
			"the question %q is read as %q, %q, %v, want no error and %q",
			q.Header(), id, nonce, err, proof.ID(proof.KeyOf(token)),
		)
	}
	if other := proof.NewQuestion(token); other.Header() == q.Header() {
		t.Error("two questions have the same nonce, want different ones")
	}
	answer := proof.Answer(proof.KeyOf(token), nonce, "127.0.0.1:9400")
	for name, tt := range map[string]struct {
		answer  string
		dialled net.Addr
		want    error
	}{
		"the gateway":      {answer, at("127.0.0.1:9400"), nil},
		"IPv4 within IPv6": {answer, at("[::ffff:127.0.0.1]:9400"), nil},
		"a relay": {answer, at("[::1]:9400"),
			&proof.RelayedError{Dialled: "[::1]:9400", Reached: "127.0.0.1:9400"}},
		"another port": {answer, at("127.0.0.1:9401"),
			&proof.RelayedError{Dialled: "127.0.0.1:9401",
				Reached: "127.0.0.1:9400"}},
		"another address in it": {strings.Replace(answer, "127.0.0.1", "127.0.0.2", 1),
			at("127.0.0.2:9400"),
			proof.ErrUnproven},
		"another token": {proof.Answer(proof.KeyOf("ptk-4567"), nonce, "127.0.0.1:9400"),
			at("127.0.0.1:9400"),
			proof.ErrUnproven},
		"another nonce": {proof.Answer(proof.KeyOf(token), strings.Repeat("0", 32),
			"127.0.0.1:9400"),
			at("127.0.0.1:9400"), proof.ErrUnproven},
		"the question": {q.Header(), at("127.0.0.1:9400"), proof.ErrUnproven},
		"nothing":      {"", at("127.0.0.1:9400"), proof.ErrUnproven},
	} {
		err := q.Check(tt.answer, tt.dialled)
		relayed, want := (*proof.RelayedError)(nil), (*proof.RelayedError)(nil)
		if errors.As(tt.want, &want) {
			if !errors.As(err, &relayed) || *relayed != *want {
				t.Errorf("%s: got %v, want %v", name, err, tt.want)
			}
		} else if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	if strings.Contains(q.Header()+answer, token) {
		t.Error("the token itself is sent, want only its proof")
	}
}

// The vector is that of docs/protocol.md, for clients in other languages.
func TestVector(t *testing.T) {
	const token, nonce = "ptk-00112233445566778899aabbccddeeff", "000102030405060708090a0b0c0d0e0f"
	if got := proof.ID(proof.KeyOf(token)); got != "12c596b516c940ac" {
		t.Errorf(`the id is %s, want "12c596b516c940ac"`, got)
	}
	if got := proof.Answer(proof.KeyOf(token), nonce,
		"127.0.0.1:9400"); got != "cd5dcba9360ba567bd526f9c83ff93af7ac35f46c02cb3dc045e901b3eee22a5 127.0.0.1:9400" {
		t.Errorf(
			"the answer is %s, want %q",
			got, "cd5dcba9360ba567bd526f9c83ff93af7ac35f46c02cb3dc045e901b3eee22a5 127.0.0.1:9400",
		)
	}
}

func FuzzParseQuestion(f *testing.F) {
	f.Add(proof.NewQuestion("ptk-1").Header())
	f.Add("0123456789abcdef 0123456789abcdef0123456789abcde")
	f.Add(" ")
	f.Fuzz(func(t *testing.T, s string) {
		id, nonce, err := proof.ParseQuestion(s)
		if err == nil && (id+" "+nonce != s || len(id) != 16 || len(nonce) != 32) {
			t.Errorf("%q is read as %q and %q, want 16 and 32 letters of it", s, id, nonce)
		}
	})
}
