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
	maxSections   = 8   // that a search returns
	maxTerms      = 32  // of a query that are looked for; the rest adds no meaning
	headingBonus  = 2   // for a term that the heading has too
	shortTerm     = 3   // letters of a term that is looked for at the beginning of words
	overviewCount = 5   // sections of an overview
	shortestCut   = 400 // characters; less of a section helps nobody
)

// fillers are words of a question that say nothing about its subject.
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

// terms returns the distinct words of a query that a section is scored by: in
// lower case, without fillers, single letters and the library's own name as long
// as others remain, and without a plural's s.
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

// score counts how often the terms occur in the section, plus a bonus for each
// that its heading has. hits is how many of them it has at all.
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

// occurrences counts a term in a text, also as a part of longer words: "wait" in
// "awaits". A short one counts at the beginning of a word only, else "row" would
// be in "browser".
func occurrences(text, term string) int {
	if len(term) > shortTerm || term[0] >= utf8.RuneSelf { // not every script separates words
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

// rank returns the sections that answer the query best, at most maxSections. A
// query that is a heading gets that section first. Equal scores go to the
// section with more of the terms, then to the earlier one.
func (l Library) rank(query string) []Section {
	type scored struct {
		Section
		exact       bool
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
		if a.exact != b.exact {
			if a.exact {
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

// Search returns the sections that have the query's terms, best first, in at
// most maxChars characters. What is left out is named at the end. It is empty
// when no section has any.
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
	room := maxChars - utf8.RuneCountInString(leftOut(found, maxChars))
	if room < shortestCut {
		return cut(texts[0], maxChars)
	}
	var b strings.Builder
	for i, text := range texts {
		n := utf8.RuneCountInString(text) + len("\n\n")
		if n <= room {
			b.WriteString(text + "\n\n")
			room -= n
			continue
		}
		if i == 0 || room >= shortestCut {
			b.WriteString(cut(text, room-len("\n\n")) + "\n\n")
		}
		b.WriteString(leftOut(found[i:], maxChars))
		break
	}
	return strings.TrimSpace(b.String())
}

// leftOut says that sections were cut or left out, and how to get at them.
func leftOut(sections []Section, maxChars int) string {
	names := make([]string, len(sections))
	for i, s := range sections {
		names[i] = fmt.Sprintf("%q", s.Heading)
	}
	return fmt.Sprintf("[Cut at %d characters. Ask with one of these headings as the query to see it whole: %s.]",
		maxChars, strings.Join(names, ", "))
}

// Overview returns what the library is, all its headings and the beginnings of
// its first sections, in at most maxChars characters.
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
	room := maxChars - utf8.RuneCountInString(b.String())
	for i, s := range first {
		share := room/(len(first)-i) - 1 // what a short one leaves goes to the next
		text := "\n" + cut(s.Text, share) + "\n"
		b.WriteString(text)
		room -= utf8.RuneCountInString(text)
	}
	return cut(strings.TrimSpace(b.String()), maxChars)
}

// cut returns at most n characters of a text, ending at a paragraph's or else a
// line's or else a word's end, with a code block that it would leave open
// closed, and a mark where something is missing.
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
	var open fence
	for line := range strings.Lines(head) {
		open.line(line)
	}
	head = strings.TrimRight(head, " \n")
	if open != "" {
		head += "\n" + string(open[:min(len(open), longestFence)])
	}
	return head + mark
}
