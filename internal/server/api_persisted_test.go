package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// restStored holds the sessions on the disk of a [restCopilot].
var restStored = []adminapi.Persisted{
	{
		ID: "stored", Label: "tea@main", Host: apiHostCopilot, Model: "gpt-5-mini", CWD: "/tea",
		Repository: "kitchen/tea", Branch: "main", State: adminapi.PersistedStored,
		UsedAt: time.Unix(2000, 0).UTC(),
	},
	{ID: "old", Summary: "of a terminal", CWD: "/", State: adminapi.PersistedInUse,
		UsedAt: time.Unix(1000, 0).UTC()},
}

var _ gateway.PersistentStarter = (*restCopilot)(nil)

func (c *restCopilot) Persisted(
	_ context.Context, f gateway.PersistedFilter,
) ([]adminapi.Persisted, error) {
	views := slices.Clone(restStored)
	slices.Reverse(views)
	return slices.DeleteFunc(views, func(v adminapi.Persisted) bool {
		return f.CWD != "" && v.CWD != f.CWD || f.Repository != "" &&
			v.Repository != f.Repository ||
			f.Branch != "" && v.Branch != f.Branch
	}), nil
}

func restOnDisk(id string) error {
	if slices.ContainsFunc(restStored, func(v adminapi.Persisted) bool { return v.ID == id }) {
		return nil
	}
	return gateway.NotPersisted(id)
}

func (c *restCopilot) Resume(
	_ context.Context, g *gateway.Gateway, id string, r gateway.ResumeRequest,
) (*gateway.Session, error) {
	if err := restOnDisk(id); err != nil {
		return nil, err
	}
	return g.Register(
		gateway.SessionSpec{ID: id, Label: "tea@main", Model: r.Model, CWD: r.CWD},
		gateway.HostInfo{Kind: apiHostCopilot, Send: true, SetModel: setModel},
		restHost{c},
	)
}

func (c *restCopilot) Delete(_ context.Context, id string) error { return restOnDisk(id) }

func setModel(_ context.Context, model, _ string) error {
	if model != "gpt-5-mini" {
		return &protocol.Error{Code: protocol.CodeInvalidJSON,
			Message: "model: there is no model " + model}
	}
	return nil
}

func TestPersistedSessions(t *testing.T) {
	f := newRESTFixture(t)
	list := func(query string) string {
		t.Helper()
		status, body := f.admin(http.MethodGet, "/api/v1/persisted"+query, "")
		if status != http.StatusOK {
			t.Fatalf("%s: got %d %s, want 200", query, status, body)
		}
		var views []adminapi.Persisted
		if err := json.Unmarshal([]byte(body), &views); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range views {
			got = append(got, v.ID+" "+v.State)
		}
		return strings.Join(got, ", ")
	}
	for query, want := range map[string]string{
		"":                                    "stored stored, old inUse",
		"?last=1":                             "stored stored",
		"?cwd=/tea/":                          "stored stored",
		"?repository=kitchen/tea&branch=main": "stored stored",
		"?branch=x":                           "",
	} {
		expectText(t, query, list(query), want)
	}
	// A session that was resumed is the gateway's own, under the same id.
	status, body := f.admin(http.MethodPost, "/api/v1/persisted/stored/resume",
		`{"model":"gpt-5-mini"}`)
	expectText(t, "resuming", fmt.Sprint(status, " ", body), `201 {"id":"stored"}`)
	expectText(t, "after resuming", list(""), "stored live, old inUse")
	status, body = f.admin(http.MethodPost, "/api/v1/sessions/stored/model",
		`{"model":"gpt-5-mini"}`)
	expectText(t, "setting its model", fmt.Sprint(status, " ", body), "200 {}")
	if s, ok := f.gateway.Session("stored"); !ok {
		t.Error("the gateway has no session stored, want the one that was resumed")
	} else if v := s.View(); v.Model != "gpt-5-mini" || v.Label != "tea@main" {
		t.Errorf("the session: got model %s and label %s, want gpt-5-mini and tea@main", v.Model,
			v.Label)
	}
	for request, want := range map[string]string{
		`POST /persisted/stored/resume {}`:                        "409 runs in this gateway already",
		`DELETE /persisted/stored `:                               "409 stop it first",
		`POST /persisted/none/resume {}`:                          "404 not on disk",
		`DELETE /persisted/none `:                                 "404 not on disk",
		`POST /persisted/old/resume {"host":"x"}`:                 "400 host: is not a field",
		`POST /persisted/old/resume {"cwd":"/none/such"}`:         "400 cwd: ",
		`POST /persisted/old/resume {"providerKey":"secret"}`:     "400 providerKey: ",
		`POST /sessions/stored/model {}`:                          "400 model: is missing",
		`POST /sessions/stored/model {"model":"x"}`:               "400 model: there is no model x",
		`GET /persisted?last=-1 `:                                 "400 last: ",
		`POST /sessions {"host":"local","cwd":"/","profile":"p"}`: "400 profile: is for sessions of host copilot",
	} {
		line, body, _ := strings.Cut(request, " {")
		method, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		if body != "" {
			body = "{" + body
		}
		code, text, _ := strings.Cut(want, " ")
		status, answer := f.admin(method, "/api/v1"+path, body)
		if strconv.Itoa(status) != code || !strings.Contains(answer, text) ||
			strings.Contains(answer, "secret") {
			t.Errorf("%s: %d %s, want %s", request, status, answer, want)
		}
	}
}

// admin makes a request with the admin token.
func (f *restFixture) admin(method, path, body string) (status int, answer string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.gateway.AdminToken())
	response, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(data))
}
