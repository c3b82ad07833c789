// Package testfiles pairs sources with their tests by the conventions of their
// languages: by name first, then by how alike the directories are.
package testfiles

import (
	"path"
	"slices"
	"strings"
)

// language is how tests are called in a language.
type language struct {
	ends     []string // of file names
	prefixes []string // of a test's name without its ending
	suffixes []string
	dirs     []string // all files below directories of these names are tests
	example  string   // of a test's name: * is the source's name without its ending
}

var languages = []language{
	{ends: []string{".go"}, suffixes: []string{"_test"}, example: "*_test.go beside it"},
	{ends: []string{".py"}, prefixes: []string{"test_"}, suffixes: []string{"_test", "_tests"},
		example: "tests/test_*.py"},
	{
		ends:     []string{".ts", ".tsx", ".js", ".jsx", ".mts", ".cts", ".mjs", ".cjs", ".vue", ".svelte"},
		suffixes: []string{".test", ".spec", ".cy", ".e2e", "-test", "-spec", "_test", "_spec", ".e2e-spec"},
		dirs:     []string{"__tests__"},
		example:  "*.test.ts beside it",
	},
	{
		ends:     []string{".java", ".kt", ".kts", ".scala", ".groovy"},
		prefixes: []string{"Test"}, suffixes: []string{"Tests", "TestCase", "Test", "IT", "Spec", "Suite"},
		example: "src/test/java/.../*Test.java",
	},
	{ends: []string{".cs", ".fs", ".vb"}, prefixes: []string{"Test"},
		suffixes: []string{"Tests", "Test", "Specs", "Spec"}, example: "*Tests.cs in the project of the tests"},
	{ends: []string{".rs"}, prefixes: []string{"test_"}, suffixes: []string{"_tests", "_test"}, dirs: []string{"tests"},
		example: "tests/*.rs, or #[cfg(test)] in the file itself"},
	{ends: []string{".rb"}, prefixes: []string{"test_"}, suffixes: []string{"_spec", "_test"},
		example: "spec/*_spec.rb"},
	{ends: []string{".php"}, suffixes: []string{"Test", "Cest"}, example: "tests/*Test.php"},
	{ends: []string{".c", ".h", ".cc", ".hh", ".cpp", ".hpp", ".cxx"}, prefixes: []string{"test_"},
		suffixes: []string{"_unittest", "_tests", "_test", "Test", "-test"}, example: "tests/*_test.cc"},
	{ends: []string{".swift"}, suffixes: []string{"Tests", "Test"}, example: "Tests/*Tests.swift"},
	{ends: []string{".dart"}, suffixes: []string{"_test"}, example: "test/*_test.dart"},
	{ends: []string{".ex", ".exs"}, suffixes: []string{"_test"}, example: "test/*_test.exs"},
}

// subject is what a file is about.
type subject struct {
	lang *language
	name string   // of the source, without its ending
	test bool     // the file is a test of it
	dir  []string // where, without what only tells sources from tests
}

// about reads a path with slashes; ok is false for a language without conventions.
func about(p string) (s subject, ok bool) {
	name := path.Base(p)
	end := path.Ext(name)
	i := slices.IndexFunc(languages, func(l language) bool { return slices.Contains(l.ends, end) })
	if i < 0 {
		return s, false
	}
	s.lang, s.name = &languages[i], strings.TrimSuffix(name, end)
	dirs := strings.Split(path.Dir(p), "/")
	s.test = slices.ContainsFunc(dirs, func(d string) bool { return slices.Contains(s.lang.dirs, d) })
	if cut, ok := s.lang.source(s.name); ok {
		s.name, s.test = cut, true
	}
	for _, d := range dirs {
		if d = plain(d); d != "" {
			s.dir = append(s.dir, d)
		}
	}
	// A file called tests is its directory's.
	if n := len(dirs); (s.name == "tests" || s.name == "test") && end == ".rs" && n > 0 {
		s.name, s.test = dirs[n-1], true
		s.dir = s.dir[:max(0, len(s.dir)-1)]
	}
	return s, true
}

// source takes what makes a name a test's from it.
func (l *language) source(name string) (string, bool) {
	for _, suffix := range l.suffixes {
		if cut, ok := strings.CutSuffix(name, suffix); ok && cut != "" {
			return cut, true
		}
	}
	for _, prefix := range l.prefixes {
		// TestBed is a test of Bed, Testing is none of ing.
		if cut, ok := strings.CutPrefix(name, prefix); ok && cut != "" &&
			(strings.HasSuffix(prefix, "_") || cut[0] < 'a') {
			return cut, true
		}
	}
	return "", false
}

// layout are directories that only say whether sources or tests are in them.
var layout = []string{
	".", "src", "main", "lib", "app", "test", "tests", "Tests", "Test", "spec", "specs", "__tests__", "unit",
	"integration", "e2e", "it",
	"java", "kotlin", "scala", "groovy", "resources", "Sources", "include",
}

// plain is a directory's name without what says so, "" if nothing is left.
func plain(dir string) string {
	if slices.Contains(layout, dir) {
		return ""
	}
	for _, suffix := range []string{".UnitTests", ".IntegrationTests", ".Tests", ".Test", ".Specs", "Tests", "-tests",
		"-test", "_tests", "_test"} {
		if cut, ok := strings.CutSuffix(dir, suffix); ok && cut != "" {
			return cut
		}
	}
	return dir
}

// Of lists, of all files, those that test a source, or the sources that a test is
// of: of those whose name fits, the ones in the directories most alike. isTest
// says which; convention is how a test would be called; ok is false where the
// language has no conventions.
func Of(p string, all []string) (found []string, isTest bool, convention string, ok bool) {
	s, ok := about(p)
	if !ok {
		return nil, false, "", false
	}
	best := -1
	for _, other := range all {
		o, ok := about(other)
		if !ok || o.lang != s.lang || o.test == s.test || o.name != s.name || other == p {
			continue
		}
		switch score := alike(s.dir, o.dir); {
		case score > best:
			best, found = score, []string{other}
		case score == best:
			found = append(found, other)
		}
	}
	if len(found) == 0 && s.lang.ends[0] == ".go" {
		found = inPackage(p, s.test, all)
	}
	slices.Sort(found)
	return found, s.test, strings.Replace(s.lang.example, "*", s.name, 1), true
}

// inPackage lists the tests, or the sources, of a Go file's package: where no name
// fits, they are all about all of it.
func inPackage(p string, test bool, all []string) (found []string) {
	for _, other := range all {
		if path.Dir(other) == path.Dir(p) && strings.HasSuffix(other, ".go") &&
			strings.HasSuffix(other, "_test.go") != test {
			found = append(found, other)
		}
	}
	return found
}

// alike scores two directories: the same is most, then by the elements that they
// end in and begin with alike.
func alike(a, b []string) int {
	if slices.Equal(a, b) {
		return 1000
	}
	score := 0
	for i := 0; i < min(len(a), len(b)) && a[len(a)-1-i] == b[len(b)-1-i]; i++ {
		score += 2
	}
	for i := 0; i < min(len(a), len(b)) && a[i] == b[i]; i++ {
		score++
	}
	return score
}
