//go:build !linux

package assembly

// releaseProgram does nothing: only Linux says which pages of a program can go.
func releaseProgram(int) {}
