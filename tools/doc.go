// Package tools defines the tools that a model uses in a workspace, and finds drop-in tools in
// directories while the program runs ([External]). The built-in tools are in package builtin, so
// that a program that offers drop-ins does not link them. [Tool.Call] checks the arguments, bounds
// the time and recovers panics. The caller decides who may call a tool, and turns the [Result] into
// the form that its wire needs.
package tools
