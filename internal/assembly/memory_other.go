//go:build !linux

package assembly

// releaseProgram has no effect here: only Linux tells which pages of a program can go.
func releaseProgram(int) {}
