package adminapi

import "time"

// Provider is the connection of a provider that has said hello, as GET /providers lists
// them. A reconnect token keeps the ID. Session is "" while the provider is bound to no
// session, and "all" for one that serves every session.
type Provider struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Instance    string    `json:"instance"` // "" if the provider has one connection only
	Trust       string    `json:"trust"`    // internal, project or external
	State       string    `json:"state"`    // bound, unbound or awaitHello
	Session     string    `json:"session"`  // an id, or "all"
	Tools       int       `json:"tools"`
	InFlight    int       `json:"inFlight"` // calls that it has not answered
	ConnectedAt time.Time `json:"connectedAt"`
	// Own says that the provider is a part of the gateway: the tap_* tools, the tools that a model
	// starts with them, or goals.
	Own bool `json:"own,omitempty"`
	// Gateway is the gateway of a cluster that the provider is connected to; GET /providers leaves
	// out the one that answers. Doubtful says that it is out of reach for the moment.
	Gateway  string `json:"gateway,omitempty"`
	Doubtful bool   `json:"doubtful,omitempty"`
	// Serves are the other gateways whose sessions the provider serves, if it serves no session of
	// the gateway that it is connected to.
	Serves []string `json:"serves,omitempty"`
}

// ConfiguredProvider is a provider that a file names, as GET /providers/configured lists them and
// as the data of [StateConfigured], whether it is connected or not. Reason is left out while it
// runs; otherwise it says in one line why not.
type ConfiguredProvider struct {
	Name   string `json:"name"` // the file's, without its ending
	Kind   string `json:"kind"` // as in the file; "" if the file has never been valid
	File   string `json:"file"`
	State  string `json:"state"`            // [ConfiguredRunning] and so on
	Reason string `json:"reason,omitempty"` // why it is not running
	// StartsAt is the time of its next start. It is left out unless it ended by itself and waits
	// for that start.
	StartsAt  time.Time `json:"startsAt,omitzero"`
	Connected []string  `json:"connected"` // the ids of its connections, as of [Provider]
	Actions   []string  `json:"actions"`   // [ActionStart] and so on, if useful now
	// Required: calls of its sessions wait while it is not bound, and are then denied.
	Required bool `json:"required,omitempty"`
}

// The actions of POST /providers/{name}/ on a [ConfiguredProvider].
const (
	ActionStart   = "start"
	ActionStop    = "stop"
	ActionRestart = "restart"
)

// States of a [ConfiguredProvider]. POST /providers/{name}/start starts a stopped or failed
// one again.
const (
	ConfiguredRunning = "running" // for a session at least
	ConfiguredStopped = "stopped" // by the user, or by its file
	ConfiguredFailed  = "failed"  // until a person corrects the problem in Reason
	ConfiguredWaiting = "waiting" // for the condition in Reason
)

// Stopped answers POST /providers/{name}/stop: how many processes of the provider file were
// stopped or, if no file has the name, how many connections were closed.
type Stopped struct {
	Stopped int `json:"stopped"`
}

// StartedProvider answers POST /providers/{name}/start: for how many sessions the provider
// runs now; one process for all sessions counts as 1. It is 0 while there is no session
// that the file is for.
type StartedProvider struct {
	Started int `json:"started"`
}

// Restarted answers POST /providers/{name}/restart. The answer comes once the new processes have
// taken the place of the old ones, or have not joined within ten seconds. It counts the sessions
// for which the provider runs again, as [StartedProvider] does. If a new process fails before that,
// the answer is the error INVALID_STATE, which says whether the old process still runs.
type Restarted struct {
	Restarted int `json:"restarted"`
	// Waiting is how many of the new processes have not joined yet. The old ones go on until they
	// have.
	Waiting int `json:"waiting,omitempty"`
}

// Pairing is a pairing code that waits for a person to type it into its provider, as GET
// /pairings lists them. It is valid for two minutes and one try; see docs/protocol.md,
// "Pairing".
type Pairing struct {
	Provider  string    `json:"provider"` // the name that the provider gave
	Code      string    `json:"code"`     // six digits
	Session   string    `json:"session"`  // the session that it will serve
	ExpiresAt time.Time `json:"expiresAt"`
}
