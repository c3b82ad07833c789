// Package library_docs answers questions about libraries from documentation
// that is on hand: some is embedded, a user's directory adds more, and Context7
// is asked for the rest.
//
// A library is a directory: its name is the ID, its *.md files hold the
// documentation, split into sections at "## " headings, and a file named
// aliases lists other names for it, one a line. The first "# " heading of the
// files is the title, the paragraph after it the description. The embedded
// libraries and those of a user have the same form.
package library_docs //nolint:revive,staticcheck // the directory's name is fixed
