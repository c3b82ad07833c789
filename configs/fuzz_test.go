package configs

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// No input panics or hangs, faults stand inside the file, and every key that the
// TOML library finds has a place.
func FuzzParse(f *testing.F) {
	for _, name := range []string{
		"tapgw.toml", "lsclient.toml", "providers/hello.toml.sample",
		"providers/weather.toml.sample",
	} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	for _, s := range []string{
		"",
		"a.b.\"c d\".'e' = [1, {f = \"\"\"x\"\"\"\"\"}, '''y''']\n[[g]]\n[g.h]\ni = 1979-05-27 07:32:00 # c\n",
		"listen = \"\\\"#\\\\\"\nx = 1", "kind = \"command\"\ncommand = [ # c\n \"a\",\n]\n",
		"[\"\\u00e9\"]\n",
		"[[hooks]]\non = \"error\"\n[[hooks]]\nhooks.on = 1\n[hooks.x]\ny = 1\n[[hooks.x.z]]\na = 1\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, faults := Parse("f.toml", []byte(text))
		_, ofProvider := ParseProvider("f.toml", []byte(text))
		_, ofLSClient := ParseLSClient("f.toml", []byte(text))
		height := strings.Count(text, "\n") + 1
		for _, fault := range slices.Concat(faults, ofProvider, ofLSClient) {
			if fault.Line < 1 || fault.Line > height || fault.Column < 1 ||
				strings.Contains(fault.Message, "\n") {
				t.Errorf("fault %q in a text of %d lines, want one line at a place of the text",
					fault.Error(), height)
			}
		}
		doc, root := open("f.toml", []byte(text))
		if root == nil {
			return
		}
		md, err := toml.Decode(doc.text, &map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range md.Keys() {
			if _, ok := doc.keys[key.String()]; !ok && !inArray(root.values, key) {
				t.Errorf("no place for key %s in %q, want its line and column", key, text)
			}
		}
	})
}

// inArray reports whether a key lies in an element of an array: the library
// leaves the element out of its path.
func inArray(values map[string]any, key toml.Key) bool {
	for _, part := range key[:len(key)-1] {
		sub, ok := values[part].(map[string]any)
		if !ok {
			return true
		}
		values = sub
	}
	return false
}
