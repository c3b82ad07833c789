// Command lsclient is the client of the Copilot language server: agent turns
// with tools from a directory, and the same tools for a gateway's sessions.
package main

import "os"

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
