package shellrule

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Deciding returns the parts of a command line that decide its exit code: the line ends with 0 only
// if each of them did. For `a; b` and `a | b` it returns b, and for `a || b`, `! a` and `a &` no
// part. ok is false for a line that is too long, or is no command line of bash. It does not look
// into commands that run others, such as `sh -c`.
func Deciding(line string) ([]string, bool) {
	if len(line) > maxLength {
		return nil, false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line),
		"")
	if err != nil {
		return nil, false
	}
	var d deciding
	var parts []string
	for _, s := range d.list(file.Stmts) {
		parts = append(parts, strings.TrimSpace(line[s.from:s.to]))
	}
	return parts, true
}

// span is a part of a line, in bytes.
type span struct{ from, to uint }

// spanOf is a statement without the semicolon at its end.
func spanOf(s *syntax.Stmt) span {
	to := s.End().Offset()
	if s.Semicolon.IsValid() {
		to = s.Semicolon.Offset()
	}
	return span{s.Pos().Offset(), to}
}

// deciding finds the parts that decide. hasPipefail is true behind `set -o pipefail`.
type deciding struct{ hasPipefail bool }

// list is for statements of which the last decides.
func (d *deciding) list(statements []*syntax.Stmt) []span {
	last := len(statements) - 1
	if last < 0 {
		return nil
	}
	for _, s := range statements[:last] {
		if call, ok := s.Cmd.(*syntax.CallExpr); ok && !s.Background {
			d.set(call)
		}
	}
	return d.statement(statements[last])
}

func (d *deciding) statement(s *syntax.Stmt) []span {
	if s == nil || s.Negated || s.Background || s.Coprocess || s.Disown {
		return nil
	}
	was := d.hasPipefail
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		return []span{spanOf(s)}
	case *syntax.TimeClause:
		return d.statement(c.Stmt)
	case *syntax.Block:
		return d.list(c.Stmts)
	case *syntax.Subshell:
		defer func() { d.hasPipefail = was }()
		return d.list(c.Stmts)
	case *syntax.BinaryCmd:
		switch {
		case c.Op == syntax.OrStmt:
			return nil
		case c.Op == syntax.AndStmt:
			if call, ok := c.X.Cmd.(*syntax.CallExpr); ok {
				d.set(call)
				defer func() { d.hasPipefail = was }() // an earlier part may have failed
			}
		case !d.hasPipefail:
			return d.statement(c.Y)
		}
		x, y := d.statement(c.X), d.statement(c.Y)
		if slices.Equal(x, []span{spanOf(c.X)}) && slices.Equal(y, []span{spanOf(c.Y)}) {
			return []span{spanOf(s)}
		}
		return append(x, y...)
	}
	return nil
}

// set follows the option pipefail.
func (d *deciding) set(call *syntax.CallExpr) {
	for i, word := range call.Args {
		switch text := word.Lit(); {
		case i == 0 && text != "set":
			return
		case i > 0 && text == "pipefail":
			option := call.Args[i-1].Lit()
			d.hasPipefail = strings.HasPrefix(option, "-") && strings.HasSuffix(option, "o")
		}
	}
}
