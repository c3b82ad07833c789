//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
)

// suiteRevisions are the revisions whose scenarios the official conformance suite runs here, on
// both sides.
var suiteRevisions = []string{"2026-07-28", "2025-11-25"}

// suite runs the official conformance suite for MCP and judges what it finds.
type suite struct {
	*home
	role, revision string
	args           []string          // what the suite is run on
	known          map[string]string // checks that are known to fail, by name, with the reason
	unclaimed      []string          // optional scenarios that are not judged
	took           time.Duration     // the last run
	runs           int
}

// scenarioResult is what the suite found in a scenario.
type scenarioResult struct {
	checks map[string]suiteCheck // the worst of each id
	stderr string                // of the client
}

// suiteCheck is a check of the suite. One that failed has the status FAILURE or WARNING.
type suiteCheck struct {
	ID, Status, Description string
	Message                 string `json:"errorMessage"`
}

var severities = []string{"SKIPPED", "INFO", "SUCCESS", "WARNING", "FAILURE"}

func (c suiteCheck) failed() bool { return c.Status == "FAILURE" || c.Status == "WARNING" }

// name is that of a check in testdata/mcp_suite.toml; the check "-" stands for a scenario without
// checks.
func (s *suite) name(scenario, check string) string {
	return strings.Join([]string{s.role, s.revision, scenario, check}, " ")
}

// run runs all scenarios of a revision. Each check that fails must be known to, and no other.
func (s *suite) run() {
	s.t.Helper()
	s.known, s.unclaimed = suiteExceptions(s.t)
	found, out := s.execute("--requirements", s.revision)
	required := s.required()
	s.leaveOut(found, required)
	for _, scenario := range required {
		if _, ok := found[scenario]; !ok {
			s.t.Errorf("the suite has no result of the scenario %s, want one:\n%s", scenario, out)
		}
	}
	wrong := map[string][]string{}
	for scenario, r := range found {
		if problems := s.judge(scenario, r); len(problems) > 0 {
			wrong[scenario] = problems
		}
	}
	const few = 5
	for _, scenario := range slices.Sorted(maps.Keys(wrong)) {
		// The suite waits half a second for some answers, which a busy machine may miss.
		for try := 1; try < 4 && len(wrong[scenario]) > 0 && len(wrong) <= few; try++ {
			s.t.Logf("again, %s after %s: %s", scenario, s.took,
				strings.Join(wrong[scenario], "; "))
			again, _ := s.execute("--scenario", scenario, "--spec-version", s.revision, "--force")
			found[scenario] = again[scenario]
			wrong[scenario] = s.judge(scenario, found[scenario])
		}
		for _, problem := range wrong[scenario] {
			s.t.Errorf("%s %s, scenario %s: %s", s.role, s.revision, scenario, problem)
		}
		if said := found[scenario].stderr; len(wrong[scenario]) > 0 && said != "" {
			s.t.Logf("the client of %s said:\n%s", scenario, said)
		}
	}
	s.summarize(found)
}

// leaveOut removes the scenarios that are not claimed. They must be there, and must be optional.
func (s *suite) leaveOut(found map[string]scenarioResult, required []string) {
	s.t.Helper()
	for _, name := range s.unclaimed {
		scenario, isOurs := strings.CutPrefix(name, s.role+" "+s.revision+" ")
		if !isOurs {
			continue
		}
		if _, ok := found[scenario]; !ok || slices.Contains(required, scenario) {
			s.t.Errorf(
				"mcp_suite.toml: %s: the suite requires it or does not have it: take it out there",
				name)
			continue
		}
		delete(found, scenario)
	}
}

// execute runs scenarios and reads what the suite found, by scenario.
func (s *suite) execute(which ...string) (found map[string]scenarioResult, output string) {
	s.t.Helper()
	s.runs++
	results := s.path("results", fmt.Sprint(s.runs))
	node, program := s.program()
	began := time.Now()
	r := s.home.run(node, slices.Concat([]string{program, s.role}, s.args, which, []string{
		"--output-dir", results, "--timeout", fmt.Sprint(patience.Milliseconds()),
	})...)
	s.took = time.Since(began).Round(time.Second)
	return s.results(results), r.stdout + r.stderr
}

// program finds the suite and the Node that it needs.
func (s *suite) program() (node, program string) {
	s.t.Helper()
	return installed(s.t, "node-"+platform+"/bin/node"),
		installed(s.t, "@modelcontextprotocol/conformance/dist/index.js")
}

// required lists the scenarios that a revision requires of a side.
func (s *suite) required() (names []string) {
	s.t.Helper()
	node, program := s.program()
	out := s.home.run(node, program, "list", "--requirements", s.revision).stdout
	isOurs := false
	for line := range strings.Lines(out) {
		text := strings.TrimSpace(line)
		name, isEntry := strings.CutPrefix(text, "- ")
		switch {
		case strings.HasSuffix(text, ":"):
			isOurs = strings.HasPrefix(strings.ToLower(text), s.role+" scenarios")
		case isOurs && isEntry:
			names = append(names, name)
		}
	}
	if len(names) < 10 {
		s.t.Fatalf("the suite lists the scenarios %q, want all of the revision %s:\n%s", names,
			s.revision, out)
	}
	return names
}

// resultTime is the end of the name of a scenario's directory.
var resultTime = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// results reads what the suite found, by scenario.
func (s *suite) results(dir string) map[string]scenarioResult {
	s.t.Helper()
	found := map[string]scenarioResult{}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "checks.json" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		// there is one for clients only
		stderr, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "stderr.txt"))
		r := scenarioResult{checks: map[string]suiteCheck{}, stderr: string(stderr)}
		for _, c := range decode[[]suiteCheck](s.t, string(data)) {
			if slices.Index(severities, c.Status) >= slices.Index(severities,
				r.checks[c.ID].Status) {
				r.checks[c.ID] = c
			}
		}
		name, err := filepath.Rel(dir, filepath.Dir(path))
		if s.role == "server" {
			name = strings.TrimPrefix(name, "server-")
		}
		found[resultTime.ReplaceAllString(name, "")] = r
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// suiteExceptions reads testdata/mcp_suite.toml: the checks that are expected to fail, with the
// reason, and the scenarios that are not claimed, as ROLE REVISION SCENARIO.
func suiteExceptions(t testing.TB) (known map[string]string, unclaimed []string) {
	t.Helper()
	var file struct {
		Group []struct {
			Reason           string
			Fails, Unclaimed []string
		}
	}
	if _, err := toml.DecodeFile(filepath.Join("testdata", "mcp_suite.toml"), &file); err != nil {
		t.Fatal(err)
	}
	known = map[string]string{}
	for _, group := range file.Group {
		unclaimed = append(unclaimed, group.Unclaimed...)
		if group.Reason == "" {
			t.Errorf("mcp_suite.toml: %v%v: want a reason", group.Fails, group.Unclaimed)
		}
		for _, name := range group.Fails {
			if known[name] != "" || len(strings.Split(name, " ")) != 4 {
				t.Errorf("mcp_suite.toml: %s: want ROLE REVISION SCENARIO CHECK, once", name)
				continue
			}
			known[name] = group.Reason
		}
	}
	return known, unclaimed
}

// judge compares what the suite found in a scenario with what is known to fail, and says what is
// wrong.
func (s *suite) judge(scenario string, r scenarioResult) (problems []string) {
	complain := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	for name := range s.known {
		words := strings.Split(name, " ")
		if _, ran := r.checks[words[3]]; !ran && words[3] != "-" &&
			name == s.name(scenario, words[3]) {
			complain(
				"check %s did not run, but mcp_suite.toml says that it fails: take it out there",
				words[3])
		}
	}
	anyRan := false
	for _, id := range slices.Sorted(maps.Keys(r.checks)) {
		c := r.checks[id]
		_, isKnown := s.known[s.name(scenario, id)]
		switch anyRan = anyRan || c.failed() || c.Status == "SUCCESS"; {
		case c.failed() && !isKnown:
			complain("check %s: %s: %s (%s), want success", id, c.Status, c.Message, c.Description)
		case !c.failed() && isKnown:
			complain("check %s: %s, but mcp_suite.toml says that it fails: take it out there", id,
				c.Status)
		}
	}
	switch _, isKnown := s.known[s.name(scenario, "-")]; {
	case !anyRan && !isKnown:
		complain("no check ran, want some, or %q in mcp_suite.toml", s.name(scenario, "-"))
	case anyRan && isKnown:
		complain("checks ran, but mcp_suite.toml says that none does: take it out there")
	}
	return problems
}

// summarize logs how many checks passed, and complains of known failures in scenarios that don't
// exist.
func (s *suite) summarize(found map[string]scenarioResult) {
	s.t.Helper()
	passed, failed := 0, 0
	for _, r := range found {
		for _, c := range r.checks {
			switch {
			case c.failed():
				failed++
			case c.Status == "SUCCESS":
				passed++
			}
		}
	}
	s.t.Logf("%s %s: %d scenarios, %d checks passed, %d failed", s.role, s.revision, len(found),
		passed, failed)
	for name := range s.known {
		words := strings.Split(name, " ")
		if _, exists := found[words[2]]; !exists && name == s.name(words[2], words[3]) {
			s.t.Errorf("mcp_suite.toml: %s: the suite has no such scenario: take it out there",
				name)
		}
	}
}
