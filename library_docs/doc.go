// Package library_docs answers questions about libraries: from embedded documentation,
// from a directory of the user, and from Context7 for all other libraries.
//
// A library is a directory whose name is its ID. Its *.md files are the documentation,
// with a section at each "## " heading. The first "# " heading is the title, and the
// paragraph after it the description. A file named aliases lists other names of the
// library, one a line. Embedded libraries and those of a user have the same form.
package library_docs //nolint:revive,staticcheck // the directory's name is fixed
