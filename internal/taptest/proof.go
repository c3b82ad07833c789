package taptest

import (
	"net"
	"net/http"

	"tapgw/internal/proof"
)

// Proving answers proof questions as a gateway that knows the tokens, because clients send nothing
// to a gateway that can't. /healthz with a question ends there; all other requests go to next, with
// the answer's header set (docs/protocol.md, Is it your gateway?).
func Proving(next http.Handler, tokens ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, nonce, _ := proof.ParseQuestion(r.Header.Get(proof.AskHeader))
		address, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		for _, token := range tokens {
			if key := proof.KeyOf(token); proof.ID(key) == id {
				w.Header().Set(proof.AnswerHeader, proof.Answer(key, nonce, proof.Address(address)))
			}
		}
		if r.URL.Path == "/healthz" && id != "" {
			return
		}
		next.ServeHTTP(w, r)
	})
}
