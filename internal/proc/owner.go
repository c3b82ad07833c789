package proc

// Owner is a process that listens on a port.
type Owner struct {
	PID     int
	Command string // its command line
}
