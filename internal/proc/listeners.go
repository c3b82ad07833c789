package proc

// Listener is a process of this user that listens on a TCP port.
type Listener struct{ PID, Port int }
