// Package tools holds the tools that a model uses in a workspace. A built-in tool
// is one Go file that calls add; [All] lists them. [External] finds drop-in tools in
// directories while the program runs. [Tool.Call] checks the arguments, bounds the
// time and recovers panics, and a tool reaches files only through
// internal/workspace. The caller decides who may call a tool and turns the [Result]
// into the form that its wire needs.
package tools
