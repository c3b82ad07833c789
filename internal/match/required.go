package match

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dlclark/regexp2/syntax"
)

// This file reads the program that the engine runs for a pattern, so that both agree on the
// pattern's meaning.

// parse returns the engine's program for a pattern, or nil if the engine can't compile it.
func parse(expr string) *syntax.Code {
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

// affordableText is how many bytes a text may have for a program. The engine looks
// at its clock between steps only, and one step may compare each character of the
// text with a whole class, or with much of the text that the pattern begins with.
func affordableText(code *syntax.Code) int {
	const (
		freeLength   = 128 // characters of a class that 64 KiB of text are compared with in 2 ms
		categoryCost = 32  // characters that take as long as one category (\p)
	)
	longest := freeLength
	sets, prefixCost := code.Sets, 4 // of a character of the prefix, in characters of a class
	if first := code.FcPrefix; first != nil {
		sets = append(sets, &first.PrefixSet)
		if first.CaseInsensitive {
			prefixCost *= 2
		}
	}
	if code.BmPrefix != nil {
		longest = max(longest, prefixCost*len(code.BmPrefix.String()))
	}
	for _, set := range sets {
		class := set.String()
		categories := strings.Count(class, `\p`) + strings.Count(class, `\P`)
		longest = max(longest, len(class)+categoryCost*categories)
	}
	return maxText * freeLength / longest
}

// maxRequired bounds the texts that requiredTexts returns, over all lists: looking
// for them must stay cheap beside the match that it saves.
const maxRequired = 8

// requiredTexts finds texts that a program can't match without: a match holds at
// least one of each list. Most patterns don't match most texts, and a look for
// these texts takes a hundredth of the engine's time. An empty result is always
// right.
func requiredTexts(code *syntax.Code) [][]string {
	var lists [][]string
	found := 0
	// A program begins with the jump that it takes without a match.
	for at := width(syntax.Lazybranch); at < len(code.Codes); {
		end := blockEnd(code.Codes, at)
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

// blockEnd finds the end of the smallest block that begins at an instruction: no
// jump inside it leads past its end, so each match runs through it from its
// beginning to its end. The result is 0 if the block has an unknown instruction.
func blockEnd(codes []int, at int) (end int) {
	end = at + 1
	for i := at; i < end; {
		w := width(codes[i])
		if w == 0 {
			return 0
		}
		if isJump(codes[i]) {
			end = max(end, codes[i+1])
		}
		i += w
		end = max(end, i)
	}
	return end
}

// firstTexts finds the first text on each way through a block: a match holds at
// least one of them. The result is empty if a way has no text.
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
		if i < at || seen[i-at] { // a jump back before the block leads to the block again
			continue
		}
		seen[i-at] = true
		if codes[i] == syntax.Multi { // without a flag: neither backwards nor in any case
			texts = append(texts, string(code.Strings[codes[i+1]]))
			continue
		}
		if isJump(codes[i]) {
			todo = append(todo, codes[i+1])
		}
		if codes[i] != syntax.Goto {
			todo = append(todo, i+width(codes[i]))
		}
	}
	// U+FFFD also stands for invalid bytes and lone surrogates, which differ from it
	// in the text.
	if slices.ContainsFunc(texts, func(t string) bool {
		return strings.ContainsRune(t, utf8.RuneError)
	}) {
		return nil
	}
	return texts
}

// isJump reports whether an instruction's first operand is where it may go.
func isJump(instruction int) bool {
	switch instruction & syntax.Mask {
	case syntax.Goto, syntax.Lazybranch, syntax.Branchmark, syntax.Lazybranchmark,
		syntax.Branchcount, syntax.Lazybranchcount:
		return true
	}
	return false
}

// width is the length of an instruction with its operands; 0 for an instruction
// that this version of the engine does not have.
func width(instruction int) int {
	switch op := instruction & syntax.Mask; {
	case op <= syntax.Setlazy, op == syntax.Capturemark, op == syntax.Branchcount,
		op == syntax.Lazybranchcount:
		return 3
	case op <= syntax.Ref, op == syntax.Testref, op == syntax.Goto, op == syntax.Nullcount,
		op == syntax.Setcount,
		op == syntax.Lazybranch, op == syntax.Branchmark, op == syntax.Lazybranchmark,
		op == syntax.Prune:
		return 2
	case op <= syntax.NonECMABoundary:
		return 1
	}
	return 0
}
