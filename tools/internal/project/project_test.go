package project

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestDetect(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  []string // KIND DIR NAME | DETAILS | WHAT: LINE; ...
	}{
		{"nothing", map[string]string{"README.md": ""}, nil},
		{"Go", map[string]string{"go.mod": "module example.com/x // it\n\ngo 1.26.0\n",
			"main.go": "", "cmd/a/main.go": "", ".golangci.yml": ""},
			[]string{"go . example.com/x | Go 1.26.0 | build: go build ./...; test: go test ./...; vet: go vet " +
				"./...; lint: golangci-lint run; run: go run .; run: go run ./cmd/a"}},
		{"node, npm",
			map[string]string{"package.json": `{"name":"x","scripts":{"zip":"z","test":"jest","build":"tsc"},"devDependencies":{"jest":"1"}}`, "package-lock.json": "{}", "tsconfig.json": ""},
			[]string{"node . x | npm, TypeScript, jest | install: npm ci; build: npm run build; test: npm run test; " +
				"zip: npm run zip"}},
		{"node, pnpm by its field",
			map[string]string{"package.json": `{"packageManager":"pnpm@9.1.0","workspaces":["a"]}`,
				"yarn.lock": ""},
			[]string{"node .  | pnpm, workspaces | install: pnpm install"}},
		{"node, spoilt", map[string]string{"package.json": `{`},
			[]string{"node .  | package.json is not right JSON, npm | install: npm install"}},
		{"Python, uv",
			map[string]string{"pyproject.toml": "[project]\nname='x'\nrequires-python='>=3.12'\n[project.scripts]\ngo='x:y'\n[tool.ruff]\n[tool.pytest.ini_options]\n", "uv.lock": ""},
			[]string{"python . x | Python >=3.12, command go | install: uv sync; test: uv run pytest; lint: uv run " +
				"ruff check ."}},
		{"Python, requirements", map[string]string{"requirements.txt": "", "manage.py": ""},
			[]string{"python .  |  | install: python -m pip install -r requirements.txt; test: python manage.py " +
				"test; run: python manage.py runserver"}},
		{"Python, bare", map[string]string{"setup.py": ""},
			[]string{"python .  |  | install: python -m pip install -e .; test: python -m unittest discover"}},
		{"Rust",
			map[string]string{"Cargo.toml": "[package]\nname='x'\nedition='2024'\n[workspace]\n",
				"src/main.rs": ""},
			[]string{"rust . x | edition 2024, workspace | build: cargo build; test: cargo test; lint: cargo " +
				"clippy; run: cargo run"}},
		{"Maven",
			map[string]string{"pom.xml": "<project><artifactId>x</artifactId><modules><module>a</module></modules></project>", "mvnw": ""},
			[]string{"maven . x | module a | build: ./mvnw package; test: ./mvnw test"}},
		{"Gradle", map[string]string{"build.gradle.kts": "plugins { application }",
			"settings.gradle.kts": "rootProject.name = \"x\"", "gradlew": ""},
			[]string{"gradle . x |  | build: ./gradlew build; test: ./gradlew test; run: ./gradlew run"}},
		{".NET", map[string]string{"x.sln": ""},
			[]string{"dotnet .  |  | build: dotnet build; test: dotnet test; run: dotnet run"}},
		{"Rails", map[string]string{"Gemfile": "", "bin/rails": "", "config.ru": "",
			".rubocop.yml": ""},
			[]string{"ruby .  |  | install: bundle install; test: bin/rails test; run: bin/rails server; lint: " +
				"bundle exec rubocop"}},
		{"Flutter",
			map[string]string{"pubspec.yaml": "name: x\ndependencies:\n  flutter:\n    sdk: flutter\n"},
			[]string{"dart . x |  | install: flutter pub get; test: flutter test; run: flutter run; lint: flutter " +
				"analyze"}},
		{"make",
			map[string]string{"Makefile": "X := 1\n.PHONY: all\nall: a\n\tgo: x\na b:\nall:\n%.o: %.c\n"},
			[]string{"make .  |  | all: make all"}},
		{"below", map[string]string{"web/package.json": "{}", "node_modules/package.json": "{}",
			"deep/er/go.mod": "",
			"api/go.mod":     "module m"},
			[]string{"go api m |  | build: go build ./...; test: go test ./...; vet: go vet ./...",
				"node web  | npm | install: npm install"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for name, text := range tt.files {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			found, err := Detect(fsys)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range found {
				var commands []string
				for _, c := range p.Commands {
					commands = append(commands, c.What+": "+c.Line)
				}
				got = append(got,
					fmt.Sprintf("%s %s %s | %s | %s", p.Kind, p.Dir, p.Name,
						strings.Join(p.Details, ", "), strings.Join(commands, "; ")))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestStart(t *testing.T) {
	for _, name := range Kinds() {
		if Start(name) == "" {
			t.Errorf("how a %s project is begun is not known, want a command", name)
		}
	}
	if Start("cobol") != "" {
		t.Error("Start(cobol) gives a command, want none")
	}
}
