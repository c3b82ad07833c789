package copilot

import (
	"context"

	sdk "github.com/github/copilot-sdk/go"
)

// Status describes the runtime as [Runtime.Probe] found it: where it is, its version, and whether
// its user is signed in to GitHub.
type Status struct {
	Found
	Version  string
	Protocol int
	SignedIn bool
	Login    string // the user's name, if signed in
	Detail   string // the runtime's message about the sign-in
}

// Probe asks the runtime for its version and sign-in. It starts the runtime if it does not run. On
// an error, the returned Status has the facts that were found before it: with Path set, the program
// exists but did not answer.
func (r *Runtime) Probe(ctx context.Context) (Status, error) {
	var st Status
	var err error
	if st.Found, err = Find(r.o.CLI); err != nil {
		return st, err
	}
	ctx, cancel := r.untilClosed(ctx)
	defer cancel()
	p, err := r.process(ctx)
	if err != nil {
		return st, err
	}
	version, err := askClient(ctx, p, askTimeout, p.client.GetStatus)
	if err != nil {
		return st, err
	}
	st.Version, st.Protocol = version.Version, version.ProtocolVersion
	auth, err := askClient(ctx, p, askTimeout,
		func(ctx context.Context) (*sdk.GetAuthStatusResponse, error) {
			return p.client.GetAuthStatus(ctx)
		})
	if err != nil {
		return st, err
	}
	st.SignedIn, st.Login, st.Detail = auth.IsAuthenticated, deref(auth.Login),
		deref(auth.StatusMessage)
	return st, nil
}
