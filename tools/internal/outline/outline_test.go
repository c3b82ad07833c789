package outline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	tests := []struct {
		file, text string
		doc        string
		want       []string // LINE DEPTH TEXT
	}{
		{"a.go",
			"// Package a is one.\n// And two.\npackage a\n\nimport \"fmt\"\n\n// T is it.\ntype T struct " +
				"{\n\tx int\n}\n\ntype (\n\tI interface{}\n\tF func(int) error\n)\n\nconst A, b = 1, 2\n\nvar _ I = " +
				"T{}\n\n// Do does.\nfunc (t *T) Do(\n\tx int,\n) (y int, err error) {\n\tfunc() {}()\n\treturn\n}\n",
			"Package a is one.\nAnd two.",
			[]string{"8 0 type T struct", "13 0 type I interface", "14 0 type F func(int) error",
				"17 0 const A", "17 0 const b",
				"22 0 func (t *T) Do( x int, ) (y int, err error)"}},
		{"broken.go", "package a\n\nfunc Whole() {}\n\nfunc Half( {\n", "",
			[]string{"3 0 func Whole()", "5 0 func Half( {"}},
		{"none.go", "", "", nil},
		{"a.py",
			"#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n\"\"\"What it does.\n\nMore.\n\"\"\"\nimport " +
				"os\n\nclass A(B):\n    def go(self, x: int) -> str:\n        if x:\n            return 1\n\nasync def " +
				"run():\n    pass\nx = 'class of'\n", "What it does.\n\nMore.",
			[]string{"9 0 class A(B)", "10 1 def go(self, x: int) -> str", "14 0 async def run()"}},
		{"b.py", "# A comment.\n# Of two lines.\nimport os\n", "A comment.\nOf two lines.", nil},
		{"a.ts",
			"/**\n * About it.\n */\nexport interface I { x: number }\nexport type T<A> = A | null;\nexport " +
				"const f = async (x: number): Promise<void> => {\n  if (x) {\n  }\n};\nexport default class C extends D " +
				"{\n  private async go(x: string): Promise<void> {\n    for (const y of x) {\n    }\n  }\n  " +
				"constructor(private x: number) {\n  }\n}\nfunction plain(a, b) {\n}\nenum E { A }\nconst notOne = 5;\n",
			"About it.",
			[]string{"4 0 export interface I { x: number }", "5 0 export type T<A> = A | null;",
				"6 0 export const f = async (x: number): Promise<void>",
				"10 0 export default class C extends D",
				"11 1 private async go(x: string): Promise<void>",
				"15 1 constructor(private x: number)", "18 0 function plain(a, b)",
				"20 0 enum E { A }"}},
		{"A.java",
			"// Licensed.\npackage x;\n\npublic final class A<T> extends B {\n    private int x = f(1);\n    " +
				"@Override\n    public static <T> List<T> go(int a, String b) throws E {\n        return new A(1);\n    " +
				"    if (x) {\n        }\n        foo(1);\n    }\n}\n", "Licensed.",
			[]string{"4 0 public final class A<T> extends B",
				"7 1 public static <T> List<T> go(int a, String b) throws E"}},
		{"A.cs",
			"namespace X.Y;\n\npublic class A : B\n{\n    public int N { get; set; }\n    public async " +
				"Task<int> Go(int x)\n    {\n        return await Foo(x);\n    }\n    int Twice(int x) => 2 * x;\n}\n", "",
			[]string{"1 0 namespace X.Y;", "3 0 public class A : B",
				"5 1 public int N { get; set; }", "6 1 public async Task<int> Go(int x)",
				"10 1 int Twice(int x) => 2 * x;"}},
		{"a.rs",
			"//! The crate.\n//! It is.\n\npub struct S<T> {\n    x: T,\n}\n\nimpl<T> S<T> {\n    pub(crate) " +
				"async fn go(&self) -> u8 {\n        let f = 1;\n    }\n}\n\nmacro_rules! m { () => {} }\npub const N: " +
				"u8 = 1;\nmod tests;\n", "The crate.\nIt is.",
			[]string{"4 0 pub struct S<T>", "8 0 impl<T> S<T>",
				"9 1 pub(crate) async fn go(&self) -> u8",
				"14 0 macro_rules! m { () => {} }", "15 0 pub const N: u8 = 1;",
				"16 0 mod tests;"}},
		{"a.rb",
			"# frozen_string_literal: true\nmodule M\n  class A < B\n    def self.go(x)\n    end\n  end\nend\n",
			"frozen_string_literal: true", []string{"2 0 module M", "3 1 class A < B",
				"4 1 def self.go(x)"}},
		{"a.c",
			"/* Header. */\n#define N 1\nstruct s {\n\tint x;\n};\nstatic int go(int x,\n\tint y)\n{\n\tif (x) " +
				"{\n\t}\n\tcall(x);\n}\nint proto(int);\nint one(void) {\n}\n", "Header.",
			[]string{"2 0 #define N 1", "3 0 struct s", "6 0 static int go(int x,",
				"14 0 int one(void)"}},
		{"a.sh",
			"#!/bin/sh\n# Does it.\nset -e\ngo() {\n  if true; then :; fi\n}\nfunction other {\n}\n", "Does it.", []string{"4 0 go()", "7 0 function other"}},
		{"README.md", "# Title\n\ntext\n\n```sh\n# no heading\n```\n## Sub\n", "",
			[]string{"1 0 # Title", "8 1 ## Sub"}},
		{"Makefile", "# Build.\nX := 1\n.PHONY: a\nall: a b\n\tgo build\na:\n", "Build.",
			[]string{"3 0 .PHONY: a", "4 0 all: a b", "6 0 a"}},
		{"c.yaml", "# Conf.\na:\n  b: 1\n\"c\": 2\n", "Conf.", []string{"2 0 a", "4 0 \"c\": 2"}},
		{"unknown.xyz", "class A {\n", "", nil},
		{"wide.js", "function f() {" + strings.Repeat("x", 1000) + "}\n", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			for _, text := range []string{tt.text, strings.ReplaceAll(tt.text, "\n", "\r\n")} {
				o := Of(tt.file, text)
				var got []string
				for _, s := range o.Symbols {
					got = append(got, fmt.Sprint(s.Line, " ", s.Depth, " ", s.Text))
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("symbols:\n%s\nwant\n%s", strings.Join(got, "\n"),
						strings.Join(tt.want, "\n"))
				}
				if o.Doc != tt.doc {
					t.Errorf("doc %q, want %q", o.Doc, tt.doc)
				}
			}
		})
	}
}

func TestLanguage(t *testing.T) {
	for file, want := range map[string]string{"a/b.go": "Go", "X.PY": "Python",
		"Makefile":     "Makefile",
		"a/Dockerfile": "Dockerfile", "x": "", "a.tsx": "TypeScript"} {
		if got := Language(file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
}

// Any text has an outline with lines of the text.
func FuzzOf(f *testing.F) {
	f.Add("a.go", "package a\nfunc (")
	f.Add("a.py", `"""`)
	f.Add("a.ts", "/*")
	f.Add("a.md", "```\n# x")
	f.Fuzz(func(t *testing.T, file, text string) {
		for _, s := range Of(file, text).Symbols {
			if s.Line < 1 || s.Line > strings.Count(text, "\n")+1 {
				t.Errorf("a symbol on line %d of %q, want one of the text's", s.Line, text)
			}
		}
	})
}
