package adminapi

import "time"

// Provider is a provider's connection.
type Provider struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Instance    string    `json:"instance"` // "" if the provider has one connection only
	Trust       string    `json:"trust"`    // internal, project or external
	State       string    `json:"state"`    // bound, unbound or awaitHello
	Session     string    `json:"session"`  // an id, or "all"
	Tools       int       `json:"tools"`
	InFlight    int       `json:"inFlight"` // calls that it has to answer
	ConnectedAt time.Time `json:"connectedAt"`
}

// ConfiguredProvider is a provider that a file names, connected or not.
type ConfiguredProvider struct {
	Name   string `json:"name"` // the file's, without its ending
	Kind   string `json:"kind"` // as in the file; "" if the file has never been valid
	File   string `json:"file"`
	State  string `json:"state"`            // [ConfiguredRunning] and so on
	Reason string `json:"reason,omitempty"` // why it is not running
}

// States of a provider that a file names.
const (
	ConfiguredRunning = "running" // for a session at least
	ConfiguredStopped = "stopped" // by the user, or by its file
	ConfiguredFailed  = "failed"  // until somebody corrects what Reason names
	ConfiguredWaiting = "waiting" // for what Reason names
)

// Stopped is the answer to stopping a provider: how many of its processes, or of
// its connections, were stopped.
type Stopped struct {
	Stopped int `json:"stopped"`
}

// StartedProvider is the answer to starting a provider: how many of its processes
// were started.
type StartedProvider struct {
	Started int `json:"started"`
}

// Restarted is the answer to restarting a provider: how many of its processes were
// started again.
type Restarted struct {
	Restarted int `json:"restarted"`
}

// Pairing is a pairing code that a person may type into its provider.
type Pairing struct {
	Provider  string    `json:"provider"` // the name that the provider gave
	Code      string    `json:"code"`     // six digits
	Session   string    `json:"session"`  // the session that it will serve
	ExpiresAt time.Time `json:"expiresAt"`
}
