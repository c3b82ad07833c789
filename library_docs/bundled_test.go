package library_docs //nolint:revive,staticcheck // see doc.go

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// aliases is the table of names that always find a bundled library.
var aliases = map[string][]string{
	"playwright": {"playwright-java", "microsoft/playwright", "pw"},
	"selenium":   {"selenium-java", "seleniumhq", "webdriver"},
	"cucumber":   {"cucumber-java", "cucumber-jvm", "cucumber-junit"},
	"gherkin":    {"feature-file", "bdd", "given-when-then"},
	"java":       {"java-se", "jdk", "java-api", "java-lang"},
	"mermaid":    {"mermaid-js", "mermaidjs", "mermaid.js", "mermaid-diagram"},
}

func TestBundledLibraries(t *testing.T) {
	if got, want := Bundled().IDs(), []string{"cucumber", "gherkin", "java", "mermaid",
		"playwright",
		"selenium"}; !slices.Equal(got, want) {
		t.Fatalf("bundled are %q, want %q", got, want)
	}
	owner := make(map[string]string)
	for _, lib := range Bundled() {
		t.Run(lib.ID, func(t *testing.T) {
			if lib.Title == lib.ID || lib.Description == "" {
				t.Errorf(
					"title %q, description %q, want Title not %q and a Description",
					lib.Title, lib.Description, lib.ID,
				)
			}
			for _, alias := range aliases[lib.ID] {
				if !slices.Contains(lib.Aliases, alias) {
					t.Errorf("no alias %q, want %q among them", alias, alias)
				}
			}
			for _, name := range append(lib.Aliases, lib.ID) {
				if owner[name] != "" {
					t.Errorf(`%q names %s and %s, want ""`, name, owner[name], lib.ID)
				}
				owner[name] = lib.ID
			}
			if n := len(lib.Sections); n < 15 || n > 25 {
				t.Errorf("%d sections, want 15 to 25", n)
			}
			words := 0
			headings := make(map[string]bool)
			for _, s := range lib.Sections {
				words += len(strings.Fields(s.Text))
				if headings[s.heading] {
					t.Errorf("two sections %q, want one", s.Heading)
				}
				headings[s.heading] = true
				if n := utf8.RuneCountInString(s.Text); n < 900 || n > 3600 {
					t.Errorf("%q: %d characters, want 900 to 3600", s.Heading, n)
				}
				if !strings.Contains(s.Text, "```") {
					t.Errorf("%q has no example, want a code block", s.Heading)
				}
			}
			if words < 4000 || words > 8000 {
				t.Errorf("%d words, want 4000 to 8000", words)
			}
		})
	}
}

// An answer that leaves sections out names their headings, so each heading as a query
// must return its whole section.
func TestHeadingsAreQueries(t *testing.T) {
	for _, lib := range Bundled() {
		for _, s := range lib.Sections {
			if got := lib.Search(s.Heading, maxAnswer); !strings.HasPrefix(got, s.Text) {
				t.Errorf("%s: %q gets %.80q, want %q at its start", lib.ID, s.Heading, got, s.Text)
			}
		}
	}
}

// queries are questions about the bundled libraries, with the beginning of the heading
// that answers each.
var queries = []struct{ id, query, heading string }{
	{"playwright", "wait for element", "Auto-waiting"},
	{"playwright", "how do I find a button by its text", "Locators"},
	{"playwright", "locator filter hasText", "Filter, chain"},
	{"playwright", "mock network request", "Network"},
	{"playwright", "login once, reuse storageState", "Authentication"},
	{"playwright", "trace viewer", "Tracing"},
	{"playwright", "record with codegen", "Codegen"},
	{"playwright", "download file", "Dialogs"},
	{"playwright", "iframe", "Frames"},
	{"playwright", "JUnit fixtures UsePlaywright", "Fixtures"},
	{"playwright", "run tests in parallel with threads", "Parallel"},
	{"playwright", "fake clock setFixedTime", "Clock"},
	{"playwright", "aria snapshot", "Aria"},
	{"playwright", "screenshot comparison", "Screenshots"},
	{"playwright", "docker GitHub Actions", "Continuous"},
	{"playwright", "assertThat hasText retry", "Assertions"},
	{"playwright", "flaky tests retries", "Retries"},
	{"playwright", "geolocation and dark mode", "Emulation"},
	{"playwright", "API request post json", "API"},
	{"selenium", "wait for element", "Waits"},
	{"selenium", "WebDriverWait custom expected condition", "Expected conditions"},
	{"selenium", "xpath locator", "Locators"},
	{"selenium", "switch to new tab window", "Windows"},
	{"selenium", "iframe", "Frames"},
	{"selenium", "shadow root", "Frames"},
	{"selenium", "relative locators above below", "Relative"},
	{"selenium", "drag and drop actions", "Actions"},
	{"selenium", "grid docker remote", "Selenium Grid"},
	{"selenium", "driver download Selenium Manager", "Selenium Manager"},
	{"selenium", "headless chrome options", "Browser options"},
	{"selenium", "BiDi console log", "BiDi"},
	{"selenium", "basic authentication", "Network"},
	{"selenium", "StaleElementReferenceException", "Exceptions"},
	{"selenium", "accept alert", "Alerts"},
	{"selenium", "page object", "Page objects"},
	{"selenium", "screenshot on failure", "Screenshots"},
	{"selenium", "add cookie", "Cookies"},
	{"selenium", "select from a dropdown", "Interact"},
	{"cucumber", "data table", "Data table"},
	{"cucumber", "convert data table to objects", "Data table types"},
	{"cucumber", "before and after hooks", "Hooks"},
	{"cucumber", "doc string json", "Doc strings"},
	{"cucumber", "parameter type", "Custom parameter types"},
	{"cucumber", "share state dependency injection picocontainer", "Share state"},
	{"cucumber", "spring boot", "Spring Boot"},
	{"cucumber", "parallel execution", "Parallel"},
	{"cucumber", "tags filter expression", "Tags"},
	{"cucumber", "html report plugin", "Plugins"},
	{"cucumber", "undefined step snippet", "Step results"},
	{"cucumber", "maven junit platform dependency", "Set up"},
	{"cucumber", "attach screenshot scenario", "Scenario object"},
	{"gherkin", "data table", "Data tables"},
	{"gherkin", "scenario outline examples", "Scenario Outline"},
	{"gherkin", "background", "Background"},
	{"gherkin", "rule keyword", "Rule"},
	{"gherkin", "doc string", "Doc strings"},
	{"gherkin", "tags", "Tags"},
	{"gherkin", "German language keywords", "Spoken"},
	{"gherkin", "declarative vs imperative", "Declarative"},
	{"gherkin", "anti-patterns", "Anti-patterns"},
	{"gherkin", "given when then meaning", "Given, When"},
	{"gherkin", "example mapping discovery", "BDD"},
	{"java", "virtual threads", "Virtual threads"},
	{"java", "record", "Records"},
	{"java", "sealed interface", "Sealed"},
	{"java", "pattern matching instanceof", "Pattern matching"},
	{"java", "switch expression", "Switch"},
	{"java", "text block", "Strings"},
	{"java", "stream filter map", "Streams"},
	{"java", "groupingBy collector", "Collectors"},
	{"java", "gatherers window", "Collectors"},
	{"java", "Optional orElse", "Optional"},
	{"java", "structured concurrency", "Structured"},
	{"java", "scoped value", "Structured"},
	{"java", "CompletableFuture", "Executors"},
	{"java", "HttpClient post", "HttpClient"},
	{"java", "read file lines", "Files"},
	{"java", "LocalDate format", "Date"},
	{"java", "try with resources", "Exceptions"},
	{"java", "getFirst getLast reversed", "Sequenced"},
	{"java", "module-info exports", "Modules"},
	{"java", "jshell", "Run Java"},
	{"java", "call C foreign memory", "Foreign"},
	{"java", "generics wildcard", "Generics"},
	{"java", "lambda functional interface", "Lambdas"},
	{"java", "BigDecimal rounding", "Numbers"},
	{"java", "what is new in Java 25", "Versions"},
	{"java", "ReentrantLock", "Locks"},
	{"java", "ConcurrentHashMap computeIfAbsent", "Locks"},
	{"mermaid", "flowchart decision node", "Flowchart: nodes"},
	{"mermaid", "arrow with a label", "Flowchart links"},
	{"mermaid", "subgraph direction", "Subgraphs"},
	{"mermaid", "escape quotes and brackets", "Special characters"},
	{"mermaid", "sequence diagram actor", "Sequence diagram: participant"},
	{"mermaid", "alt else loop", "Sequence diagram blocks"},
	{"mermaid", "class inheritance and interface", "Class diagram"},
	{"mermaid", "composite state", "State diagram"},
	{"mermaid", "one to many foreign key", "Entity"},
	{"mermaid", "gantt milestone after task", "Gantt"},
	{"mermaid", "git branch merge", "Git graph"},
	{"mermaid", "user journey score", "User journey"},
	{"mermaid", "timeline periods", "Timeline"},
	{"mermaid", "mind map", "Mindmap"},
	{"mermaid", "kanban ticket", "Kanban"},
	{"mermaid", "pie chart", "Pie chart"},
	{"mermaid", "sankey", "Sankey"},
	{"mermaid", "architecture services C4", "Architecture"},
	{"mermaid", "requirement satisfies", "Requirement"},
	{"mermaid", "classDef colour style", "Styles"},
	{"mermaid", "dark theme themeVariables", "Configuration"},
	{"mermaid", "mmdc export svg png", "Render"},
	{"mermaid", "syntax error in text", "Errors"},
	{"mermaid", "which kinds of diagrams", "Kinds of diagrams"},
}

// The first section for a query is the one that answers it.
func TestQueries(t *testing.T) {
	for _, tt := range queries {
		found := Bundled().Resolve(tt.id)[0].rank(tt.query)
		if len(found) == 0 || !strings.HasPrefix(found[0].Heading, tt.heading) {
			var got []string
			for _, s := range found {
				got = append(got, s.Heading)
			}
			t.Errorf("%s %q: got %q, want %s first", tt.id, tt.query, got, tt.heading)
		}
	}
}
