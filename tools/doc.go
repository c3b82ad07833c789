// Package tools is for the tools that a model uses in a workspace: one file for
// each, which registers itself by being there.
package tools
