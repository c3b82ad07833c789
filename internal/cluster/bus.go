package cluster

// bus carries messages by their subjects, at most once, in the order of each sender. NATS is one; the tests have one
// in memory, whose time stands still.
type bus interface {
	// publish sends a message. If nobody listens to the subject, a message that says so comes to reply.
	publish(subject, reply string, data []byte) error
	// subscribe calls handle with each message of the subjects, one at a time. stop returns at once.
	subscribe(subject string, handle func(message)) (stop func(), err error)
	// maxPayload is the size in bytes that a message may have.
	maxPayload() int
}

// message is what comes from a [bus].
type message struct {
	data     []byte
	isUnread bool // what was sent with this subject as its reply has reached nobody
}

// Subjects are tap.TO.FROM.KIND. A NATS server that lets each gateway publish to tap.*.NAME.> alone, and subscribe to
// tap.NAME.> alone, so vouches for the sender of each message (docs/cluster.md).
const (
	subjectRoot = "tap."
	kindTrunk   = ".trunk"
)

func trunkSubject(to, from string) string { return subjectRoot + to + "." + from + kindTrunk }
