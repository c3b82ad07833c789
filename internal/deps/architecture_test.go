package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestArchitectureNamesExist holds ARCHITECTURE.md against the code: each function
// and each room that it names in backticks is there. A walk that leads past a
// renamed function is worse than none.
func TestArchitectureNamesExist(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	declared := declarations(t, root)
	names := regexp.MustCompile("`([a-z]+(?:\\.[A-Za-z]+){1,2})`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 30 {
		t.Fatalf("ARCHITECTURE.md names %d functions, want its walks to name at least 30", len(names))
	}
	for _, name := range names {
		if !declared[name[1]] && !strings.HasSuffix(name[1], ".go") && !strings.HasSuffix(name[1], ".md") {
			t.Errorf("ARCHITECTURE.md names %s, which no package declares", name[1])
		}
	}
	for _, room := range regexp.MustCompile("`((?:cmd|internal|tools)/[a-z]+)`").FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join(root, room[1])); err != nil {
			t.Errorf("ARCHITECTURE.md names the room %s: %v", room[1], err)
		}
	}
}

// declarations are the functions, methods, types and variables of the module, as
// package.Name and package.Type.Method.
func declarations(t *testing.T, root string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") && name != ".." || name == "testdata" || name == "node_modules") {
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
		for _, decl := range file.Decls {
			add(found, file.Name.Name, decl)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func add(found map[string]bool, pkg string, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name := pkg + "." + d.Name.Name
		if d.Recv != nil {
			name = pkg + "." + receiver(d.Recv.List[0].Type) + "." + d.Name.Name
		}
		found[name] = true
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				found[pkg+"."+s.Name.Name] = true
			case *ast.ValueSpec:
				for _, n := range s.Names {
					found[pkg+"."+n.Name] = true
				}
			}
		}
	}
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
