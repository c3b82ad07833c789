package copilot

import (
	"context"
	"net/http"
	"strings"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/gateway"
)

// capabilities says that a model on an endpoint of the user's own sees images, and
// that it can be told how hard to think if somebody did: the runtime knows nothing
// of it, and would leave both out without a word. GitHub's models it knows.
func (s *session) capabilities() *rpc.ModelCapabilitiesOverride {
	if s.provider == nil {
		return nil
	}
	_, effort := s.chosenModel()
	return &rpc.ModelCapabilitiesOverride{
		Supports: &rpc.ModelCapabilitiesOverrideSupports{
			Vision: new(!s.lacksVision.Load()), ReasoningEffort: pointerUnless(effort != "", false),
		},
	}
}

// hideImages takes images away from a model that refused a request for them. They
// stay in the history, so every later turn would fail as well.
func (s *session) hideImages(c *conn, e *rpc.SessionErrorData) {
	badRequest := e.StatusCode != nil && *e.StatusCode == http.StatusBadRequest
	about := s.hasShownImage.Load() || strings.Contains(strings.ToLower(e.Message), "image")
	if c == nil || s.provider == nil || !badRequest || !about || s.lacksVision.Swap(true) {
		return
	}
	_, err := ask(s.ctx, c.process, askTimeout, func(ctx context.Context) (*rpc.SessionUpdateOptionsResult, error) {
		return c.sdk.RPC.Options.Update(
			ctx, &rpc.SessionUpdateOptionsParams{ModelCapabilitiesOverrides: s.capabilities()},
		)
	})
	if err != nil {
		s.log.Warn("the session still shows images to its model", "error", err)
		return
	}
	s.note(
		gateway.LogWarning, "the model refused a request after it was shown an image: from now on images are left out",
	)
}
