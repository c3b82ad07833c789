// Command tapctl steers a running gateway from a shell: sessions, providers,
// tools and streams.
package main

import "os"

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
