package library_docs //nolint:revive,staticcheck // see doc.go

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxSections   = 8   // sections that a search returns
	maxTerms      = 32  // terms of a query that count
	headingBonus  = 2   // score of a term that is in the heading, too
	shortTerm     = 3   // letters; a term this short counts only at the beginning of words
	overviewCount = 5   // sections in an overview
	shortestCut   = 400 // characters; a shorter part of a section is useless
)

// fillers are words of a query that say nothing about its subject.
var fillers = makeSet(`a about an and any are as at be by can could did do does for from get how i if in into is it its
	make me my of on or our should so some that the their them then there these this to use used using want was we
	what when where which who why will with would you your`)

func makeSet(words string) map[string]bool {
	set := make(map[string]bool)
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}

// terms returns the distinct words of a query in lower case, without a plural's s. It
// leaves out fillers, single letters and the library's own name unless nothing else is
// left.
func terms(query, library string) []string {
	words := strings.FieldsFunc(strings.ToLower(query), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_'
	})
	subject := slices.DeleteFunc(slices.Clone(words), func(w string) bool {
		return fillers[w] || w == library || len(w) == 1
	})
	if len(subject) == 0 {
		subject = words
	}
	var out []string
	for _, w := range subject {
		if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
			w = w[:len(w)-1]
		}
		if !slices.Contains(out, w) && len(out) < maxTerms {
			out = append(out, w)
		}
	}
	return out
}

// score counts the occurrences of the terms in the section, plus a bonus for each term in
// its heading. hits is the number of terms that occur.
func (s *Section) score(terms []string) (score, hits int) {
	for _, t := range terms {
		n := occurrences(s.text, t)
		if n == 0 {
			continue
		}
		hits++
		score += n
		if occurrences(s.heading, t) > 0 {
			score += headingBonus
		}
	}
	return score, hits
}

// occurrences counts a term in a text, also inside of words: "wait" in "awaits". A short
// term counts only at the beginning of a word, or "row" would match "browser".
func occurrences(text, term string) int {
	if len(term) > shortTerm || term[0] >= utf8.RuneSelf { // some scripts do not separate words
		return strings.Count(text, term)
	}
	n := 0
	for from := 0; ; {
		i := strings.Index(text[from:], term)
		if i < 0 {
			return n
		}
		from += i
		before, _ := utf8.DecodeLastRuneInString(text[:from])
		if !unicode.IsLetter(before) && !unicode.IsDigit(before) {
			n++
		}
		from += len(term)
	}
}

// rank returns the best sections for a query, at most maxSections. A section whose heading
// is the query comes first. Equal scores are ordered by the number of terms, then by
// position.
func (l Library) rank(query string) []Section {
	type scored struct {
		Section
		isHeading   bool
		score, hits int
	}
	var found []scored
	words := terms(query, l.ID)
	asHeading := strings.ToLower(strings.TrimSpace(query))
	for i := range l.Sections {
		s := &l.Sections[i]
		if score, hits := s.score(words); score > 0 {
			found = append(found, scored{*s, s.heading == asHeading, score, hits})
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int {
		if a.isHeading != b.isHeading {
			if a.isHeading {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.hits, a.hits))
	})
	out := make([]Section, min(len(found), maxSections))
	for i := range out {
		out[i] = found[i].Section
	}
	return out
}

// Search returns the sections with terms of the query, best first, in at most maxChars
// characters. A note at the end names the sections that are left out. The result is ""
// if no section has a term.
func (l Library) Search(query string, maxChars int) string {
	found := l.rank(query)
	if len(found) == 0 || maxChars <= 0 {
		return ""
	}
	texts := make([]string, len(found))
	for i, s := range found {
		texts[i] = s.Text
	}
	if all := strings.Join(texts, "\n\n"); utf8.RuneCountInString(all) <= maxChars {
		return all
	}
	left := maxChars - utf8.RuneCountInString(leftOut(found, maxChars))
	if left < shortestCut {
		return cut(texts[0], maxChars)
	}
	var b strings.Builder
	for i, text := range texts {
		n := utf8.RuneCountInString(text) + len("\n\n")
		if n <= left {
			b.WriteString(text + "\n\n")
			left -= n
			continue
		}
		if i == 0 || left >= shortestCut {
			b.WriteString(cut(text, left-len("\n\n")) + "\n\n")
		}
		b.WriteString(leftOut(found[i:], maxChars))
		break
	}
	return strings.TrimSpace(b.String())
}

// leftOut is the note about sections that are cut or left out, with the queries for them.
func leftOut(sections []Section, maxChars int) string {
	names := make([]string, len(sections))
	for i, s := range sections {
		names[i] = fmt.Sprintf("%q", s.Heading)
	}
	return fmt.Sprintf(
		"[Cut at %d characters. Ask with one of these headings as the query to see it whole: %s.]",
		maxChars, strings.Join(names, ", "))
}

// Overview returns the title and description of the library, all its headings and the
// beginnings of its first sections, in at most maxChars characters.
func (l Library) Overview(maxChars int) string {
	var b strings.Builder
	b.WriteString("# " + l.Title + "\n\n")
	if l.Description != "" {
		b.WriteString(l.Description + "\n\n")
	}
	b.WriteString("Sections, each of them a good query:\n")
	for _, s := range l.Sections {
		b.WriteString("- " + s.Heading + "\n")
	}
	first := l.Sections[:min(len(l.Sections), overviewCount)]
	left := maxChars - utf8.RuneCountInString(b.String())
	for i, s := range first {
		share := left/(len(first)-i) - 1 // a short section leaves more for the next ones
		text := "\n" + cut(s.Text, share) + "\n"
		b.WriteString(text)
		left -= utf8.RuneCountInString(text)
	}
	return cut(strings.TrimSpace(b.String()), maxChars)
}

// cut returns at most n characters of a text, with a mark at the end if it is longer. It
// cuts at the end of a paragraph, a line or a word, and closes an open code block.
func cut(text string, n int) string {
	const mark = "\n[...]"
	const longestFence = 8
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	const reserved = len(mark) + len("\n") + longestFence
	if n <= reserved {
		return ""
	}
	head := string([]rune(text)[:n-reserved])
	for _, at := range []string{"\n\n", "\n", " "} {
		if i := strings.LastIndex(head, at); i > len(head)/2 {
			head = head[:i]
			break
		}
	}
	var fence codeFence
	for line := range strings.Lines(head) {
		fence.read(line)
	}
	head = strings.TrimRight(head, " \n")
	if fence != "" {
		head += "\n" + string(fence[:min(len(fence), longestFence)])
	}
	return head + mark
}
