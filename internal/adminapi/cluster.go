package adminapi

import "time"

// Cluster is the answer of GET /cluster: this gateway's view of the gateways that it has joined.
// Without a cluster, Name is empty and the lists have only this gateway's own items.
type Cluster struct {
	Name      string `json:"name"`      // this gateway's name in the cluster
	Connected bool   `json:"connected"` // to NATS
	// why others do not see this gateway, or it does not see them
	Fault    string           `json:"fault,omitempty"`
	Gateways []ClusterGateway `json:"gateways"` // the others
	// Sessions and Providers are this gateway's own and those that other gateways share with it.
	Sessions  []Session  `json:"sessions"`
	Providers []Provider `json:"providers"`
}

// States of a [ClusterGateway]. A gateway is doubtful if its last sign of life is too old.
const (
	GatewayUp       = "up"
	GatewayDoubtful = "doubtful"
)

// ClusterGateway is another gateway of the cluster. That gateway reports its own Version and
// StartedAt.
type ClusterGateway struct {
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	State     string    `json:"state"`     // GatewayUp or GatewayDoubtful
	Admitted  bool      `json:"admitted"`  // by the config of this gateway
	Reachable bool      `json:"reachable"` // both gateways admit each other, and messages arrive
	// Refused counts its messages that this gateway refused, by kind of message.
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// KeptHistory is the answer of GET /cluster/history: events of the kept streams of this gateway and
// the admitted gateways, newest first. The part of an event's id before the slash is the gateway
// that keeps it.
type KeptHistory struct {
	Events []StreamRow `json:"events"`
	Faults []string    `json:"faults"` // why events may be missing
}
