package gateway

import (
	"time"

	"tapgw/internal/adminapi"
)

// TimelineLine is one line of a session's timeline.
type TimelineLine struct {
	adminapi.TimelineLine

	order uint64 // among all that happened in the session
}

// LiveLine is one callback of a session, or its error, for followers. Its JSON
// has ts beside the callback's own members.
type LiveLine struct {
	Seq   uint64
	TS    time.Time
	Event Event

	order uint64 // among all that happened in the session
}

// HistoryRow is one entry of a stream.
type HistoryRow struct {
	adminapi.StreamRow

	Seq   uint64 `json:"-"`
	order uint64 // among all that happened in the session
}

// Receipt tells the fate of a push.
type Receipt struct {
	Seq    uint64 // of the event in the session; 0 if it was not stored
	Fate   adminapi.Fate
	Reason string // for people; "" if there is nothing to explain

	turn uint64 // turns that had ended when it was delivered
}
