//go:build !linux

package main

// releaseProgram does nothing: only Linux says which pages of a program can go.
func releaseProgram(int) {}
