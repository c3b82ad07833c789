// Package copilot runs the gateway's sessions in the Copilot CLI runtime. It is the only room that
// imports the Copilot SDK, because the SDK's patch releases break their users.
//
// Invariants:
//
//   - One runtime process serves all sessions. It starts with the first session, in a process group
//     of its own, and ends with the gateway, because its stdin is the gateway's pipe.
//   - An SDK event handler only enqueues. Each session has one pump, the only goroutine that turns
//     the runtime's events into calls to the gateway.
//   - Every request to the runtime has a deadline, and ends at once when the process ends.
//   - When the runtime dies, the gateway starts a new one and resumes the sessions with their
//     tools. Calls and prompts that were in flight have ended by then.
//   - A terminal's session is its person's. The gateway joins it over a pipe ([Runtime.Join],
//     [Runtime.Attach]), adds tools, prompts and lines, and never answers the terminal's questions
//     to its person.
package copilot
