package library_docs //nolint:revive,staticcheck // see doc.go

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParsePage(t *testing.T) {
	tests := []struct {
		name, text string
		want       page
	}{
		{"nothing", "", page{}},
		{"only white space", " \n\n", page{}},
		{"no heading", "Some text.\n",
			page{sections: []Section{{Heading: "file", Text: "Some text."}}}},
		{"only a title", "# Acme\n\nWhat it is.\n", page{
			title: "Acme", description: "What it is.",
			sections: []Section{{Heading: "Acme", Text: "# Acme\n\nWhat it is."}},
		}},
		{"title, description over two lines, sections",
			"# Acme\n\nOne\ntwo.\n\nMore.\n\n## A\n\na\n\n### deeper\n\n## B\nb", page{
				title: "Acme", description: "One two.",
				sections: []Section{{Heading: "A", Text: "## A\n\na\n\n### deeper"},
					{Heading: "B", Text: "## B\nb"}},
			}},
		{"front matter is no description", "---\ntitle: x\n---\n# Acme\nWhat.\n## A\na", page{
			title: "Acme", description: "What.",
			sections: []Section{{Heading: "A", Text: "## A\na"}},
		}},
		{"a list is no description", "# Acme\n\n- x\n\n## A\n",
			page{title: "Acme", sections: []Section{{Heading: "A", Text: "## A"}}}},
		{"CRLF and BOM", "\ufeff# Acme\r\n\r\nWhat.\r\n\r\n## A\r\na\r\n", page{
			title: "Acme", description: "What.",
			sections: []Section{{Heading: "A", Text: "## A\na"}},
		}},
		{"headings in code",
			"## A\n```sh\n## no\n# no\n~~~\n```\n~~~~ x\n```\n~~~\n## no\n~~~~\n## B\n", page{
				sections: []Section{
					{Heading: "A",
						Text: "## A\n```sh\n## no\n# no\n~~~\n```\n~~~~ x\n```\n~~~\n## no\n~~~~"},
					{Heading: "B", Text: "## B"},
				},
			}},
		{"not headings", "## A\n##b\n## \n ## c\n```inline``` ## d\n", page{
			sections: []Section{{Heading: "A", Text: "## A\n##b\n## \n ## c\n```inline``` ## d"}},
		}},
		{"a title inside of a section is none", "## A\n# B\n",
			page{sections: []Section{{Heading: "A", Text: "## A\n# B"}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := parsePage("file", tt.text)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(page{}),
				cmpopts.IgnoreUnexported(Section{})); diff != "" {
				t.Errorf("sections (-want +got):\n%s", diff)
			}
		})
	}
}
