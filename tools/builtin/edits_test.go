package builtin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/tools"
)

// announcer records what Edit and its done get.
type announcer struct {
	log    []string
	refuse error
	before func() // runs in the first Edit
}

func (a *announcer) edit(_ context.Context, list []tools.FileEdit) (func(error), error) {
	for _, e := range list {
		show := func(s *string) string {
			if s == nil {
				return "-"
			}
			return fmt.Sprintf("%q", *s)
		}
		line := fmt.Sprintf("%s %s %s %v", e.Name, show(e.Was), show(e.Now), e.Mode)
		if e.Dir {
			line += " dir"
		}
		if e.TooLarge {
			line += " too large"
		}
		a.log = append(a.log, line)
	}
	if a.before != nil {
		a.before()
		a.before = nil
	}
	if a.refuse != nil {
		return nil, a.refuse
	}
	return func(err error) { a.log = append(a.log, fmt.Sprint("done ", err)) }, nil
}

// Edit sees each change of a file before it happens, and done how it went.
func TestEditIsAnnounced(t *testing.T) {
	tests := []struct {
		tool string
		in   args
		want string
	}{
		{"create_file", args{"filePath": "new/x", "content": "n"},
			`new/x - "n" ----------|done <nil>`},
		{"create_file", args{"filePath": "x", "content": "n"},
			`x "old\n" "n" -rw-r-----|done <nil>`},
		{"create_file", args{"filePath": "x", "content": "old\n"}, ``},
		{"insert_edit_into_file", args{"filePath": "link", "code": "n"},
			`link "old\n" "n" -rw-r-----|done <nil>`},
		{"replace_string_in_file", args{"filePath": "x", "oldString": "ol", "newString": "b",
			"explanation": ""},
			`x "old\n" "bd\n" -rw-r-----|done <nil>`},
		{"apply_patch", args{"explanation": "",
			"input": "*** Begin Patch\n*** Update File: x\n*** Move to: y\n@@\n-old\n+new\n*** End Patch"},
			`x "old\n" - -rw-r-----|y - "new\n" ----------|done <nil>`},
		{"create_directory", args{"dirPath": "a/b"}, `a/b - - ---------- dir|done <nil>`},
		{"create_directory", args{"dirPath": "."}, ``},
		{"create_file", args{"filePath": "ro", "content": "n"},
			`ro "r" "n" -r--r-----|done ro is read-only: it was not changed`},
	}
	for _, tt := range tests {
		for _, refuse := range []error{nil, errors.New("use tabs")} {
			env := space(t, files{"x": "old\n", "ro": "r"})
			if err := errors.Join(os.Chmod(filepath.Join(env.Root, "x"), 0o640),
				os.Chmod(filepath.Join(env.Root, "ro"), 0o440),
				os.Symlink("x", filepath.Join(env.Root, "link"))); err != nil {
				t.Fatal(err)
			}
			a := &announcer{refuse: refuse}
			env.Edit = a.edit
			_, err := call(t, env, tt.tool, tt.in)
			got, want := strings.Join(a.log, "|"), tt.want
			if refuse != nil && want != "" {
				want, _, _ = strings.Cut(want, "|done")
				if !errors.Is(err, refuse) {
					t.Errorf("%s %v refused: error %v, want %v in it", tt.tool, tt.in, err, refuse)
				}
				if data, err := os.ReadFile(filepath.Join(env.Root, "x")); string(data) != "old\n" {
					t.Errorf("%s %v refused: x holds %q, %v, want %q", tt.tool, tt.in, data, err,
						"old\n")
				}
			}
			if got != want {
				t.Errorf("%s %v: announced %s, want %s", tt.tool, tt.in, got, want)
			}
		}
	}
}

// A file that changes while a person is asked is announced again with what it holds then.
func TestEditIsAnnouncedAgain(t *testing.T) {
	for tool, in := range map[string]args{
		"create_file": {"filePath": "x", "content": "now"},
		"replace_string_in_file": {"filePath": "x", "oldString": "a", "newString": "A",
			"explanation": ""},
	} {
		env := space(t, files{"x": "a"})
		a := &announcer{}
		a.before = func() {
			if err := os.WriteFile(filepath.Join(env.Root, "x"), []byte("a, the user's"),
				0o600); err != nil {
				t.Error(err)
			}
		}
		env.Edit = a.edit
		if _, err := call(t, env, tool, in); err != nil {
			t.Errorf("%s: %v", tool, err)
		}
		if len(a.log) != 4 || !strings.HasPrefix(a.log[2], `x "a, the user's" `) ||
			a.log[3] != "done <nil>" {
			t.Errorf("%s: announced %q, want a second time with the user's text", tool, a.log)
		}
	}
}

// A file that is too large to be read is announced as such.
func TestEditOfLargeFile(t *testing.T) {
	env := space(t, files{"x": strings.Repeat("x", 16<<20+1)})
	a := &announcer{}
	env.Edit = a.edit
	if _, err := call(t, env, "create_file", args{"filePath": "x", "content": "n"}); err != nil {
		t.Fatal(err)
	}
	if got, want := a.log[0], `x - "n" -rw`; !strings.HasPrefix(got, want) ||
		!strings.HasSuffix(got, " too large") {
		t.Errorf("announced %q, want %q and too large", got, want)
	}
}
