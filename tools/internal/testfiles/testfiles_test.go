package testfiles

import (
	"slices"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	tests := []struct {
		name, path string
		all        string
		want       string
		isTest     bool
	}{
		{"Go", "a/x.go", "a/x.go a/x_test.go a/y_test.go b/x_test.go", "a/x_test.go", false},
		{"Go, of the package", "a/x.go", "a/x.go a/y.go a/y_test.go a/z_test.go",
			"a/y_test.go a/z_test.go", false},
		{"Go, back", "a/x_test.go", "a/x.go a/y.go a/x_test.go b/x.go", "a/x.go", true},
		{"Go, back to the package", "a/all_test.go", "a/x.go a/y.go a/all_test.go", "a/x.go a/y.go",
			true},
		{"Python", "pkg/foo.py", "pkg/foo.py tests/test_foo.py tests/test_bar.py",
			"tests/test_foo.py", false},
		{"Python, mirrored", "src/app/db/foo.py",
			"tests/app/web/test_foo.py tests/app/db/test_foo.py", "tests/app/db/test_foo.py",
			false},
		{"Python, back", "tests/db/test_foo.py", "pkg/db/foo.py pkg/web/foo.py", "pkg/db/foo.py",
			true},
		{"TypeScript", "src/foo.ts", "src/foo.test.ts src/foo.spec.tsx src/bar.test.ts",
			"src/foo.spec.tsx src/foo.test.ts", false},
		{"TypeScript, __tests__", "src/foo.tsx", "src/__tests__/foo.tsx src/__tests__/foo.test.tsx",
			"src/__tests__/foo.test.tsx src/__tests__/foo.tsx", false},
		{"JavaScript, back", "src/__tests__/foo.js", "src/foo.js src/bar.js lib/foo.js",
			"lib/foo.js src/foo.js", true},
		{"TypeScript, index in many places", "src/a/index.ts",
			"src/b/index.test.ts src/a/index.test.ts", "src/a/index.test.ts", false},
		{"Java", "src/main/java/org/x/Foo.java",
			"src/test/java/org/x/FooTest.java src/test/java/org/y/FooTest.java src/test/java/org/x/FooIT.java",
			"src/test/java/org/x/FooIT.java src/test/java/org/x/FooTest.java", false},
		{"Java, back", "src/test/java/org/x/FooTests.java", "src/main/java/org/x/Foo.java",
			"src/main/java/org/x/Foo.java", true},
		{"Kotlin for Java", "src/main/java/Foo.java", "src/test/kotlin/FooTest.kt",
			"src/test/kotlin/FooTest.kt",
			false},
		{"a word that only begins so", "src/Testing.java", "src/ing.java src/TestingTest.java",
			"src/TestingTest.java",
			false},
		{"Rust", "src/parse.rs", "src/parse.rs tests/parse.rs src/parse/tests.rs",
			"src/parse/tests.rs tests/parse.rs",
			false},
		{"Rust, back", "tests/parse.rs", "src/parse.rs src/lex.rs", "src/parse.rs", true},
		{"C#", "src/My.App/Services/Foo.cs",
			"tests/My.App.Tests/Services/FooTests.cs tests/Other.Tests/FooTests.cs",
			"tests/My.App.Tests/Services/FooTests.cs", false},
		{"C#, back", "tests/My.App.Tests/Services/FooTests.cs",
			"src/My.App/Services/Foo.cs src/My.App/Foo.cs", "src/My.App/Services/Foo.cs", true},
		{"Ruby, spec", "app/models/user.rb",
			"spec/models/user_spec.rb test/models/user_test.rb spec/requests/user_spec.rb",
			"spec/models/user_spec.rb test/models/user_test.rb", false},
		{"Ruby, gem", "lib/gem/user.rb", "test/test_user.rb", "test/test_user.rb", false},
		{"Ruby, back", "spec/models/user_spec.rb", "app/models/user.rb lib/user.rb",
			"app/models/user.rb", true},
		{"none", "pkg/foo.py", "pkg/foo.py pkg/bar.py", "", false},
		{"another language", "a/foo.py", "a/foo_test.go", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, isTest, convention, ok := Find(tt.path, strings.Fields(tt.all))
			if !ok || isTest != tt.isTest || !slices.Equal(got, strings.Fields(tt.want)) {
				t.Errorf("got %q, a test: %v, %v; want %q, %v", got, isTest, ok, tt.want, tt.isTest)
			}
			if convention == "" || strings.Contains(convention, "*") {
				t.Errorf("the convention is %q, want names without a *", convention)
			}
		})
	}
	if _, _, _, ok := Find("README.md", nil); ok {
		t.Error("Find(README.md) has tests, want none")
	}
}
