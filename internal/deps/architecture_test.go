package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestArchitectureNamesExist holds ARCHITECTURE.md against the code: each function and
// each room that it names exists, and each function is linked to the file that declares
// it. A walk that leads past a renamed or moved function is worse than none.
func TestArchitectureNamesExist(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	declared := declarations(t, root)
	name := regexp.MustCompile("`([a-z]+(?:\\.[A-Za-z]+){1,2})`(?:\\]\\(([^)]+)\\))?")
	names := name.FindAllStringSubmatch(string(text), -1)
	if len(names) < 30 {
		t.Fatalf("ARCHITECTURE.md names %d functions, want its walks to name at least 30",
			len(names))
	}
	for _, name := range names {
		files := declared[name[1]]
		switch {
		case strings.HasSuffix(name[1], ".go"), strings.HasSuffix(name[1], ".md"):
		case len(files) == 0:
			t.Errorf("ARCHITECTURE.md names %s, which no package declares, want at least one",
				name[1])
		case !slices.Contains(files, name[2]):
			t.Errorf("ARCHITECTURE.md links %s to %q, want [`%[1]s`](%[3]s)", name[1], name[2],
				files[0])
		}
	}
	rooms := regexp.MustCompile("`((?:cmd|internal|tools)/[a-z]+)`")
	for _, room := range rooms.FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join(root, room[1])); err != nil {
			t.Errorf("ARCHITECTURE.md names the room %s: %v", room[1], err)
		}
	}
}

// declarations maps the functions, methods, types and variables of the module, as
// package.Name and package.Type.Method, to the files that declare them.
func declarations(t *testing.T, root string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			name := d.Name()
			hidden := strings.HasPrefix(name, ".") && name != ".."
			if path != root && (hidden || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		path, err = filepath.Rel(root, path)
		for _, decl := range file.Decls {
			for _, name := range declaredNames(decl) {
				name = file.Name.Name + "." + name
				found[name] = append(found[name], filepath.ToSlash(path))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// declaredNames are the names that a declaration declares: Name, or Type.Method.
func declaredNames(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			return []string{receiver(d.Recv.List[0].Type) + "." + d.Name.Name}
		}
		return []string{d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
