package adminapi

import "time"

// Source is a source of events that a provider file of kind source names, as GET /sources lists
// them. Unknown times are left out.
type Source struct {
	Name      string    `json:"name"`
	Kind      string    `json:"kind"`  // run, prompt, files, url or webhook
	State     string    `json:"state"` // [SourceRunning] and so on
	Session   string    `json:"session"`
	Stream    string    `json:"stream"`
	LastRunAt time.Time `json:"lastRunAt,omitzero"`
	NextRunAt time.Time `json:"nextRunAt,omitzero"`
	Reason    string    `json:"reason,omitempty"` // why it does not run, or why its last run failed
	Runs      int       `json:"runs"`
	File      string    `json:"file"`
}

// States of a [Source].
const (
	SourceRunning = "running" // a run is under way
	SourceWaiting = "waiting" // for its time, its event or a session
	SourceDone    = "done"    // it had its last run
	SourceStopped = "stopped" // by the user, or by its file
	SourceFailed  = "failed"  // until a person corrects the problem in Reason
)
