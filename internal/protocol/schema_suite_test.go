package protocol

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOfficialSuite runs the official tests of JSON Schema, which google/jsonschema-go contains.
func TestOfficialSuite(t *testing.T) {
	const module = "github.com/google/jsonschema-go"
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	for draft, uri := range map[string]string{
		"draft7":       "http://json-schema.org/draft-07/schema#",
		"draft2020-12": "https://json-schema.org/draft/2020-12/schema",
	} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "jsonschema",
			"testdata", draft, "*.json"))
		if err != nil || len(files) < 30 {
			t.Fatalf("%s: %d files, %v, want at least 30", draft, len(files), err)
		}
		checked := 0
		for _, file := range files {
			checked += runSuite(t, file, uri)
		}
		if checked < 800 {
			t.Errorf("%s: %d values checked, want at least 800", draft, checked)
		}
	}
}

// runSuite returns how many values it checked. Schemas are left out that need another document, a
// dynamic reference, or to be no object.
func runSuite(t *testing.T, file, uri string) (checked int) {
	var groups []struct {
		Description string
		Schema      Raw
		Tests       []struct {
			Description string
			Data        Raw
			Valid       bool
		}
	}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &groups)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		var schema map[string]any
		if err := json.Unmarshal(group.Schema, &schema); err != nil {
			continue
		}
		schema["$schema"] = uri
		raw, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		s, err := CompileValueSchema(raw)
		if err != nil {
			if !strings.Contains(err.Error(), "is not in this schema") &&
				!strings.Contains(err.Error(), "dynamic references are not supported") {
				t.Errorf("%s: %v", group.Description, err)
			}
			continue
		}
		for _, test := range group.Tests {
			checked++
			if err := s.Check(test.Data); (err == nil) != test.Valid {
				t.Errorf("%s, %s: %v, want valid %v", group.Description, test.Description, err,
					test.Valid)
			}
		}
	}
	return checked
}
