// Package tools holds the tools that a model uses in a workspace: one Go file for
// each, which registers itself by being there, and drop-ins that are found at run
// time. A tool gets its arguments checked, touches files only through
// internal/workspace, and answers or fails exactly once in words for the model;
// who may call it, and the shape that a wire wants, is its caller's business.
package tools
