// Package copilot runs the gateway's sessions in the Copilot CLI runtime. It is
// the only room that imports the Copilot SDK, whose patch releases break.
//
// Invariants:
//
//   - One runtime process serves all sessions. It is started with the first
//     one, in a process group of its own, and ends with us: its stdin is our pipe.
//   - An SDK event handler only enqueues. Each session has one pump, the only
//     goroutine that turns the runtime's events into calls to the gateway.
//   - Every request to the runtime has a deadline, and ends at once when the
//     process does.
//   - A runtime that dies is started again and its sessions are resumed with
//     their tools; what was in flight has ended by then.
package copilot
