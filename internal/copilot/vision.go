package copilot

import (
	"context"
	"net/http"
	"strings"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
)

// capabilities declares the abilities of a model on the user's own endpoint: that it sees images,
// and that its effort can be set if the session sets one. The runtime does not know such a model
// and would silently leave both out. For GitHub's models it returns nil.
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

// hideImages stops showing images to a model that refused a request with one. The images stay in
// the history, so every later turn would fail too.
func (s *session) hideImages(c *conn, e *rpc.SessionErrorData) {
	badRequest := deref(e.StatusCode) == http.StatusBadRequest
	about := s.hasShownImage.Load() || strings.Contains(strings.ToLower(e.Message), "image")
	if c == nil || s.provider == nil || !badRequest || !about || s.lacksVision.Swap(true) {
		return
	}
	_, err := ask(s.ctx, c.process, askTimeout,
		func(ctx context.Context) (*rpc.SessionUpdateOptionsResult, error) {
			return c.sdk.RPC.Options.Update(
				ctx, &rpc.SessionUpdateOptionsParams{ModelCapabilitiesOverrides: s.capabilities()},
			)
		})
	if err != nil {
		s.log.Warn("the session still shows images to its model", "error", err)
		return
	}
	s.note(
		adminapi.LogWarning,
		"the model refused a request after it was shown an image: from now on images are left out",
	)
}
