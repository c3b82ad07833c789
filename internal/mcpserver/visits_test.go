package mcpserver

import (
	"testing"
	"testing/synctest"
	"time"
)

// The SDK ends the connection of a client from which it has got nothing for clientTimeout.
func TestSDKHearsOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visits
		v.begin("a")()
		isDirect := func() bool {
			_, end := v.beginCall(t.Context(), "a", "1")
			if end != nil {
				end()
			}
			return end != nil
		}
		for round := range 3 {
			if !isDirect() || !isDirect() {
				t.Errorf("round %d: the SDK gets calls, want none so soon", round)
			}
			<-time.After(seenEvery + time.Second)
			if isDirect() {
				t.Errorf("round %d: the SDK gets no call, want one", round)
			}
		}
		if _, end := v.beginCall(t.Context(), "b", "1"); end != nil {
			t.Error("a call of an unknown client is not the SDK's")
		}
	})
}
