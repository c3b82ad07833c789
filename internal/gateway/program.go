package gateway

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dlclark/regexp2/syntax"
)

// program is what the engine runs for a pattern. What is read from it agrees with
// the engine on what the pattern means.
func program(expr string) *syntax.Code {
	tree, err := syntax.Parse(expr, syntax.ECMAScript)
	if err != nil {
		return nil
	}
	code, err := syntax.Write(tree)
	if err != nil {
		return nil
	}
	return code
}

// affordable is how long a text may be for a pattern, in bytes. The engine looks
// at its clock between steps, and one step may compare each character of the text
// with a whole class, or with much of what the pattern begins with.
func affordable(code *syntax.Code) int {
	const (
		plenty   = 128 // characters of a class: 64 KiB of text take two milliseconds
		category = 32  // characters that one takes as long as
	)
	longest := plenty
	sets, slow := code.Sets, 4 // what a character of the beginning takes beside one of a class
	if first := code.FcPrefix; first != nil {
		sets = append(sets, &first.PrefixSet)
		if first.CaseInsensitive {
			slow *= 2
		}
	}
	if code.BmPrefix != nil {
		longest = max(longest, slow*len(code.BmPrefix.String()))
	}
	for _, set := range sets {
		class := set.String()
		longest = max(longest, len(class)+category*(strings.Count(class, `\p`)+strings.Count(class, `\P`)))
	}
	return maxSubject * plenty / longest
}

// maxRequired bounds the texts that required finds: looking for them is to be
// cheap beside the match that it saves.
const maxRequired = 8

// required finds texts that a pattern can't match without: one of each list. Most
// patterns don't match most texts, and to see that this way takes a hundredth of
// the engine's time, which for some is endless. None is always right.
func required(code *syntax.Code) [][]string {
	var lists [][]string
	found := 0
	// The program begins with the jump that is taken when nothing matches.
	for at := width(syntax.Lazybranch); at < len(code.Codes); {
		end := block(code.Codes, at)
		if end == 0 {
			return nil
		}
		if texts := firstTexts(code, at, end); len(texts) > 0 && found+len(texts) <= maxRequired {
			lists = append(lists, texts)
			found += len(texts)
		}
		at = end
	}
	return lists
}

// block finds the end of the smallest piece of a program, from an instruction on,
// that nothing in it jumps over the end of: every match passes from its beginning
// to its end. 0 is an instruction that we don't know.
func block(codes []int, at int) (end int) {
	end = at + 1
	for i := at; i < end; {
		w := width(codes[i])
		if w == 0 {
			return 0
		}
		if jumps(codes[i]) {
			end = max(end, codes[i+1])
		}
		i += w
		end = max(end, i)
	}
	return end
}

// firstTexts finds the texts of which each way through a block meets one; none
// when there is a way that meets none.
func firstTexts(code *syntax.Code, at, end int) []string {
	codes := code.Codes
	var texts []string
	seen := make([]bool, end-at)
	for todo := []int{at}; len(todo) > 0; {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if i >= end {
			return nil
		}
		if i < at || seen[i-at] { // what goes back before the block comes again
			continue
		}
		seen[i-at] = true
		if codes[i] == syntax.Multi { // without a flag: neither backwards nor in any case
			texts = append(texts, string(code.Strings[codes[i+1]]))
			continue
		}
		if jumps(codes[i]) {
			todo = append(todo, codes[i+1])
		}
		if codes[i] != syntax.Goto {
			todo = append(todo, i+width(codes[i]))
		}
	}
	// Bytes that are no text, and halves of a pair, look like this one and are not it.
	if slices.ContainsFunc(texts, func(t string) bool { return strings.ContainsRune(t, utf8.RuneError) }) {
		return nil
	}
	return texts
}

// jumps reports whether an instruction's first operand is where it may go.
func jumps(instruction int) bool {
	switch instruction & syntax.Mask {
	case syntax.Goto, syntax.Lazybranch, syntax.Branchmark, syntax.Lazybranchmark, syntax.Branchcount, syntax.Lazybranchcount:
		return true
	}
	return false
}

// width is the length of an instruction with its operands; 0 for one that this
// version of the engine does not have.
func width(instruction int) int {
	switch op := instruction & syntax.Mask; {
	case op <= syntax.Setlazy, op == syntax.Capturemark, op == syntax.Branchcount, op == syntax.Lazybranchcount:
		return 3
	case op <= syntax.Ref, op == syntax.Testref, op == syntax.Goto, op == syntax.Nullcount, op == syntax.Setcount,
		op == syntax.Lazybranch, op == syntax.Branchmark, op == syntax.Lazybranchmark, op == syntax.Prune:
		return 2
	case op <= syntax.NonECMABoundary:
		return 1
	}
	return 0
}
