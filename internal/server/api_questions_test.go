package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// TestAnswers shows what the API answers to right, wrong and late answers.
func TestAnswers(t *testing.T) {
	f := newOpenAPIFixture(t)
	var sessions []*gateway.Session
	for range 2 {
		s, err := f.gateway.Start(t.Context(), gateway.StartRequest{Host: gateway.HostLocal,
			CWD: "/"})
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	s, other := sessions[0], sessions[1]
	at := "/api/v1/sessions/" + s.ID() + "/answer"
	askPermission(f, s)
	var list []struct{ ID string }
	_, body := f.ask("GET", "/api/v1/questions", "")
	if err := json.Unmarshal(body, &list); err != nil || len(list) != 1 {
		t.Fatalf("questions: got %s (%v), want one", body, err)
	}
	id := list[0].ID
	for _, tc := range []struct {
		path, body string
		status     int
		want       string
	}{
		{at, `{"decision":"once"}`, 400,
			"question: is required, the id of the one that is answered: " + id},
		{at, fmt.Sprintf(`{"question":%q,"decision":"often"}`, id), 400,
			`decision: \"often\" is not one of once, session, deny`},
		{at, `{"content":[]}`, 400, "content: must be an object"},
		{at, `{"choice":"once"}`, 400, "choice: is not a field of this request"},
		{at, `{"question":"x","decision":"once"}`, 404,
			`question \"x\" does not exist in this session`},
		{"/api/v1/sessions/" + other.ID() + "/answer",
			fmt.Sprintf(`{"question":%q,"decision":"once"}`, id), 404,
			"does not exist in this session"},
		{"/api/v1/sessions/none/answer", `{"decision":"once"}`, 404,
			`session \"none\" does not exist`},
		{at, fmt.Sprintf(`{"question":%q,"decision":"deny","text":"no"}`, id), 200, "{}"},
		{at, fmt.Sprintf(`{"question":%q,"decision":"once"}`, id), 409, "is over"},
		{at, `{"decision":"once"}`, 404, "no question waits in this session"},
	} {
		status, body := f.ask("POST", tc.path, tc.body)
		if status != tc.status || !strings.Contains(string(body), tc.want) {
			t.Errorf("%s: got %d %s, want %d …%s…", tc.body, status, body, tc.status, tc.want)
		}
	}
}

// TestAttachmentsAndHeaders shows how attachments and headers of a prompt are checked.
func TestAttachmentsAndHeaders(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(file, []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bytes := func(n int) []byte { return make([]byte, n) }
	one, two := 1, 2
	zero := 0
	for name, tc := range map[string]struct {
		list []adminapi.Attachment
		want string
	}{
		"file and directory": {[]adminapi.Attachment{{Path: file}, {Path: dir}}, ""},
		"lines": {
			[]adminapi.Attachment{{Path: file, FirstLine: &one, LastLine: &two},
				{Path: file, FirstLine: &two}}, "",
		},
		"no path": {[]adminapi.Attachment{{Path: file}, {}}, "attachments[1].path: is required"},
		"relative": {[]adminapi.Attachment{{Path: "a.txt"}},
			`attachments[0].path: "a.txt" must be an absolute path`},
		"missing": {[]adminapi.Attachment{{Path: file + "x"}}, "does not exist"},
		"a device": {[]adminapi.Attachment{{Path: os.DevNull}},
			"is neither a file nor a directory"},
		"no first line": {[]adminapi.Attachment{{Path: file, LastLine: &two}},
			"attachments[0].firstLine: is required with lastLine"},
		"line zero": {[]adminapi.Attachment{{Path: file, FirstLine: &zero}}, "lines count from 1"},
		"backwards": {[]adminapi.Attachment{{Path: file, FirstLine: &two, LastLine: &one}},
			"not before the first: 2-1"},
		"many": {make([]adminapi.Attachment, 101), "attachments: must be at most 100"},
		"bytes": {[]adminapi.Attachment{{Data: bytes(1), Name: "ä b.txt", MIMEType: "text/x-go"},
			{Path: file}}, ""},
		"bytes and a path": {[]adminapi.Attachment{{Data: bytes(1), Name: "a", Path: file}},
			"attachments[0].path: must be left out with data"},
		"bytes and lines": {[]adminapi.Attachment{{Data: bytes(1), Name: "a", LastLine: &one}},
			"attachments[0].firstLine: must be left out with data"},
		"bytes without a name": {[]adminapi.Attachment{{Data: bytes(1)}},
			"attachments[0].name: is required with data"},
		"a name without bytes": {[]adminapi.Attachment{{Path: file, Name: "a"}},
			"attachments[0].name: is of an attachment with data, which must not be empty"},
		"no bytes": {[]adminapi.Attachment{{Data: bytes(0), Name: "a"}},
			"attachments[0].name: is of an"},
		"a name with a path": {[]adminapi.Attachment{{Data: bytes(1), Name: "../a"}},
			"without a directory"},
		"a name with a line": {[]adminapi.Attachment{{Data: bytes(1), Name: "a\nb"}},
			"attachments[0].name: must be"},
		"a long name": {[]adminapi.Attachment{{Data: bytes(1), Name: strings.Repeat("a", 256)}},
			"at most 255"},
		"no type": {[]adminapi.Attachment{{Data: bytes(1), Name: "a", MIMEType: "text"}},
			"attachments[0].mimeType"},
		"a type with more": {[]adminapi.Attachment{{Data: bytes(1), Name: "a",
			MIMEType: "text/x\" y=\""}},
			"attachments[0].mimeType"},
		"the largest": {[]adminapi.Attachment{{Data: bytes(apiMaxUpload), Name: "a"}}, ""},
		"one too large": {[]adminapi.Attachment{{Data: bytes(apiMaxUpload + 1), Name: "a"}},
			"attachments[0].data: has"},
		"too large together": {[]adminapi.Attachment{{Data: bytes(apiMaxUpload), Name: "a"},
			{Data: bytes(apiMaxUpload), Name: "b"}, {Data: bytes(1), Name: "c"}},
			"attachments: have more than 10485760"},
		"as many as may be": {slices.Repeat([]adminapi.Attachment{{Data: bytes(1), Name: "a"}}, 20),
			""},
		"too many": {slices.Repeat([]adminapi.Attachment{{Data: bytes(1), Name: "a"}}, 21),
			"at most 20 may have data"},
	} {
		_, err := readAttachments(tc.list)
		if (err == nil) != (tc.want == "") || err != nil &&
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
	for header, want := range map[string]string{
		"X-Trace: abc": "",
		"x: ":          "",
		"X Y: z":       "is not the name of a header",
		": z":          "is not the name",
		"Host: x":      "Host can't be set: the runtime sets it",
		"X: a\nb":      "printable line",

		"authorization: Bearer x":         "can't be set: the endpoint's key",
		"X: " + strings.Repeat("a", 4097): "at most 4096",
	} {
		name, value, _ := strings.Cut(header, ": ")
		err := checkHeaders(map[string]string{name: value})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %q", header, err, want)
		}
	}
}
