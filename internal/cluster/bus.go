package cluster

// Bus carries messages by their subjects, at most once, in the order of each sender. NATS is one;
// tests have one in memory, for which the clock of a bubble may stand still.
type Bus interface {
	// Publish sends a message. If the subject has no listener, reply gets a message that says so.
	Publish(subject, reply string, data []byte) error
	// Subscribe calls handle with each message of the subject, one at a time. With isUnread, data
	// is empty: a message that named this subject as its reply found no listener. stop returns at
	// once.
	Subscribe(subject string, handle func(data []byte, isUnread bool)) (stop func(), err error)
	// MaxPayload is the size in bytes that a message may have.
	MaxPayload() int
}

// Subjects are tap.TO.FROM.KIND. A NATS server that lets each gateway publish to tap.*.NAME.>
// alone, and subscribe to tap.NAME.> alone, so vouches for the sender of each message
// (docs/cluster.md).
const (
	subjectRoot = "tap."
	kindTrunk   = ".trunk"
)

func trunkSubject(to, from string) string { return subjectRoot + to + "." + from + kindTrunk }
