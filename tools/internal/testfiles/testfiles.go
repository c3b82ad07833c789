// Package testfiles pairs sources with their tests by the conventions of their
// languages: by name first, then by the similarity of their directories.
package testfiles

import (
	"path"
	"slices"
	"strings"
)

// language has the conventions for the names of tests in a language.
type language struct {
	ends     []string // endings of file names
	prefixes []string // of a test's name
	suffixes []string // of a test's name without its ending
	dirs     []string // directories that hold only tests
	example  string   // a test's name, with * for the source's name without its ending
}

var languages = []language{
	{ends: []string{".go"}, suffixes: []string{"_test"}, example: "*_test.go beside it"},
	{ends: []string{".py"}, prefixes: []string{"test_"}, suffixes: []string{"_test", "_tests"},
		example: "tests/test_*.py"},
	{
		ends: []string{".ts", ".tsx", ".js", ".jsx", ".mts", ".cts", ".mjs", ".cjs", ".vue",
			".svelte"},
		suffixes: []string{".test", ".spec", ".cy", ".e2e", "-test", "-spec", "_test", "_spec",
			".e2e-spec"},
		dirs:    []string{"__tests__"},
		example: "*.test.ts beside it",
	},
	{
		ends:     []string{".java", ".kt", ".kts", ".scala", ".groovy"},
		prefixes: []string{"Test"}, suffixes: []string{"Tests", "TestCase", "Test", "IT", "Spec",
			"Suite"},
		example: "src/test/java/.../*Test.java",
	},
	{ends: []string{".cs", ".fs", ".vb"}, prefixes: []string{"Test"},
		suffixes: []string{"Tests", "Test", "Specs", "Spec"},
		example:  "*Tests.cs in the project of the tests"},
	{ends: []string{".rs"}, prefixes: []string{"test_"}, suffixes: []string{"_tests", "_test"},
		dirs: []string{"tests"}, example: "tests/*.rs, or #[cfg(test)] in the file itself"},
	{ends: []string{".rb"}, prefixes: []string{"test_"}, suffixes: []string{"_spec", "_test"},
		example: "spec/*_spec.rb"},
	{ends: []string{".php"}, suffixes: []string{"Test", "Cest"}, example: "tests/*Test.php"},
	{ends: []string{".c", ".h", ".cc", ".hh", ".cpp", ".hpp", ".cxx"}, prefixes: []string{"test_"},
		suffixes: []string{"_unittest", "_tests", "_test", "Test", "-test"},
		example:  "tests/*_test.cc"},
	{ends: []string{".swift"}, suffixes: []string{"Tests", "Test"}, example: "Tests/*Tests.swift"},
	{ends: []string{".dart"}, suffixes: []string{"_test"}, example: "test/*_test.dart"},
	{ends: []string{".ex", ".exs"}, suffixes: []string{"_test"}, example: "test/*_test.exs"},
}

// subject is the source that a file is, or that it tests.
type subject struct {
	lang   *language
	name   string   // of the source, without its ending
	isTest bool     // the file is a test
	dir    []string // directories of the path, without the ones that only hold sources or tests
}

// subjectOf reads a path with slashes; ok is false for a language without conventions.
func subjectOf(p string) (s subject, ok bool) {
	name := path.Base(p)
	end := path.Ext(name)
	i := slices.IndexFunc(languages, func(l language) bool { return slices.Contains(l.ends, end) })
	if i < 0 {
		return s, false
	}
	s.lang, s.name = &languages[i], strings.TrimSuffix(name, end)
	dirs := strings.Split(path.Dir(p), "/")
	s.isTest = slices.ContainsFunc(dirs, func(d string) bool {
		return slices.Contains(s.lang.dirs, d)
	})
	if cut, ok := s.lang.sourceName(s.name); ok {
		s.name, s.isTest = cut, true
	}
	for _, d := range dirs {
		if d = baseDir(d); d != "" {
			s.dir = append(s.dir, d)
		}
	}
	// A Rust file tests.rs tests its directory.
	if n := len(dirs); (s.name == "tests" || s.name == "test") && end == ".rs" && n > 0 {
		s.name, s.isTest = dirs[n-1], true
		s.dir = s.dir[:max(0, len(s.dir)-1)]
	}
	return s, true
}

// sourceName returns the name of the source that a test is named after; false if the
// name is not a test's.
func (l *language) sourceName(name string) (string, bool) {
	for _, suffix := range l.suffixes {
		if cut, ok := strings.CutSuffix(name, suffix); ok && cut != "" {
			return cut, true
		}
	}
	for _, prefix := range l.prefixes {
		// TestBed is a test of Bed, but Testing is not a test of ing.
		if cut, ok := strings.CutPrefix(name, prefix); ok && cut != "" &&
			(strings.HasSuffix(prefix, "_") || cut[0] < 'a') {
			return cut, true
		}
	}
	return "", false
}

// layoutDirs are directories that only say whether they hold sources or tests.
var layoutDirs = []string{
	".", "src", "main", "lib", "app", "test", "tests", "Tests", "Test", "spec", "specs",
	"__tests__", "unit", "integration", "e2e", "it",
	"java", "kotlin", "scala", "groovy", "resources", "Sources", "include",
}

// testDirSuffixes end the names of directories with tests.
var testDirSuffixes = []string{
	".UnitTests", ".IntegrationTests", ".Tests", ".Test", ".Specs", "Tests", "-tests", "-test",
	"_tests", "_test",
}

// baseDir is a directory's name without a test suffix, "" for one of layoutDirs.
func baseDir(dir string) string {
	if slices.Contains(layoutDirs, dir) {
		return ""
	}
	for _, suffix := range testDirSuffixes {
		if cut, ok := strings.CutSuffix(dir, suffix); ok && cut != "" {
			return cut
		}
	}
	return dir
}

// Find lists the files in all that test the source p, or the sources of the test p; isTest tells
// which. Of files with a fitting name it returns the files in the most similar directories.
// convention is the name that a test of p would have. ok is false if the language has no
// conventions.
func Find(p string, all []string) (found []string, isTest bool, convention string, ok bool) {
	s, ok := subjectOf(p)
	if !ok {
		return nil, false, "", false
	}
	best := -1
	for _, other := range all {
		o, ok := subjectOf(other)
		if !ok || o.lang != s.lang || o.isTest == s.isTest || o.name != s.name || other == p {
			continue
		}
		switch score := similarity(s.dir, o.dir); {
		case score > best:
			best, found = score, []string{other}
		case score == best:
			found = append(found, other)
		}
	}
	if len(found) == 0 && s.lang.ends[0] == ".go" {
		found = inPackage(p, s.isTest, all)
	}
	slices.Sort(found)
	return found, s.isTest, strings.Replace(s.lang.example, "*", s.name, 1), true
}

// inPackage lists the tests of a Go source's package, or the sources of a Go test's
// package. They are the answer if no name fits.
func inPackage(p string, isTest bool, all []string) (found []string) {
	for _, other := range all {
		if path.Dir(other) == path.Dir(p) && strings.HasSuffix(other, ".go") &&
			strings.HasSuffix(other, "_test.go") != isTest {
			found = append(found, other)
		}
	}
	return found
}

// similarity scores two directories: equal ones most, others by the number of common
// elements at their ends and, less, at their beginnings.
func similarity(a, b []string) int {
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
