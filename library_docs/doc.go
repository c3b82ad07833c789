// Package library_docs is for embedded documentation of libraries, found by name
// and searched by section.
package library_docs //nolint:revive,staticcheck // the directory's name is fixed
