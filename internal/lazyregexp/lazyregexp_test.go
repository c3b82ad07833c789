package lazyregexp

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// A program's start costs nothing for its patterns, not even for one that is wrong.
func TestCompiledAtFirstUse(t *testing.T) {
	wrong := New(`(`)
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, "missing closing )") {
			t.Errorf("use of a wrong pattern: panic %q, want the fault", p)
		}
	}()
	wrong.MatchString("")
	t.Error("use of a wrong pattern: no panic, want one")
}

func TestMethods(t *testing.T) {
	const expr, text = `(a+)(b?)`, "xaab ab a"
	r, want := New(expr), regexp.MustCompile(expr)
	same := func(name string, got, want any) {
		t.Helper()
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			t.Errorf("%s: %s, want %s", name, g, w)
		}
	}
	up := strings.ToUpper
	same("FindAll", r.FindAll([]byte(text), -1), want.FindAll([]byte(text), -1))
	same("FindAllStringSubmatch", r.FindAllStringSubmatch(text, 2),
		want.FindAllStringSubmatch(text, 2))
	same("FindAllStringSubmatchIndex", r.FindAllStringSubmatchIndex(text, 2),
		want.FindAllStringSubmatchIndex(text, 2))
	same("FindIndex", r.FindIndex([]byte(text)), want.FindIndex([]byte(text)))
	same("FindString", r.FindString(text), want.FindString(text))
	same("FindStringSubmatch", r.FindStringSubmatch(text), want.FindStringSubmatch(text))
	same("MatchString", r.MatchString(text), want.MatchString(text))
	same("ReplaceAllString", r.ReplaceAllString(text, "$2$1"), want.ReplaceAllString(text, "$2$1"))
	same("ReplaceAllStringFunc", r.ReplaceAllStringFunc(text, up),
		want.ReplaceAllStringFunc(text, up))
}
