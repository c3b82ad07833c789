package adminapi

import "time"

// Cluster is the answer of GET /cluster: what this gateway sees of the gateways that it has joined. Without a cluster,
// Name is empty and the lists have what this gateway has.
type Cluster struct {
	Name      string           `json:"name"`            // of this gateway among the others
	Connected bool             `json:"connected"`       // to NATS
	Fault     string           `json:"fault,omitempty"` // why others do not see this gateway, or it does not see them
	Gateways  []ClusterGateway `json:"gateways"`        // the others
	// Sessions and Providers are those of this gateway, and those that the others share with it.
	Sessions  []Session  `json:"sessions"`
	Providers []Provider `json:"providers"`
}

// States of a [ClusterGateway]. A doubtful one has not been heard of for longer than it should.
const (
	GatewayUp       = "up"
	GatewayDoubtful = "doubtful"
)

// ClusterGateway is another gateway of the cluster. Version and StartedAt are what it says of itself.
type ClusterGateway struct {
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	State     string    `json:"state"`     // GatewayUp or GatewayDoubtful
	Admitted  bool      `json:"admitted"`  // by the config of this gateway
	Reachable bool      `json:"reachable"` // each of the two admits the other, and messages reach them
	// Refused counts what it sent and this gateway refused, by what it was.
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// KeptHistory is the answer of GET /cluster/history: events of the streams that last of this gateway and the admitted
// ones, newest first. What stands before the slash in an event's id is the gateway that keeps it.
type KeptHistory struct {
	Events []StreamRow `json:"events"`
	Faults []string    `json:"faults"` // why events may be missing
}
