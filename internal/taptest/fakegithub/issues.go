package fakegithub

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Issue makes an open issue with labels.
func Issue(number int, title, body string, labels ...string) Object {
	list := []any{}
	for _, l := range labels {
		list = append(list, Object{"name": l})
	}
	return Object{"number": number, "title": title, "body": body, "state": "open",
		"state_reason": nil, "labels": list, "user": Object{"login": "ann"}, "assignees": []any{},
		"comments": 0, "updated_at": now(),
		"html_url": "https://github.com/owner/repo/issues/" + strconv.Itoa(number)}
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

// Say adds a comment to an issue, as a person would. The caller holds the lock.
func (s *Server) Say(number int, login, text string) {
	s.Talk[number] = append(s.Talk[number], Object{"id": len(s.Talk[number]) + 1, "body": text,
		"user": Object{"login": login}, "created_at": now(), "updated_at": now()})
	if issue := s.issue(number); issue != nil {
		issue["comments"], issue["updated_at"] = len(s.Talk[number]), now()
	}
}

func (s *Server) issue(number int) Object {
	i := slices.IndexFunc(s.Issues, func(o Object) bool { return o["number"] == number })
	if i < 0 {
		return nil
	}
	return s.Issues[i]
}

// issues answers about issues, and changes them.
func (s *Server) issues(r *http.Request, path, body string) answer {
	parts := strings.Split(path, "/")
	if r.Method == http.MethodGet && path == "issues" {
		found := []Object{}
		for _, issue := range s.Issues {
			if matches(r, issue) {
				found = append(found, issue)
			}
		}
		return answer{status: http.StatusOK, body: found, list: "-"}
	}
	if len(parts) < 2 || parts[0] != "issues" {
		return refused(http.StatusNotFound, "Not Found")
	}
	number, _ := strconv.Atoi(parts[1])
	issue := s.issue(number)
	if issue == nil {
		return refused(http.StatusNotFound, "Not Found")
	}
	var in Object
	if body != "" && json.Unmarshal([]byte(body), &in) != nil {
		return refused(http.StatusBadRequest, "Problems parsing JSON")
	}
	switch r.Method + " " + strings.Join(parts[2:], "/") {
	case "GET ":
		return answer{status: http.StatusOK, body: issue}
	case "GET comments":
		return answer{status: http.StatusOK, body: rows(s.Talk[number]), list: "-"}
	case "POST comments":
		if in["body"] == nil {
			return refused(http.StatusUnprocessableEntity, "Validation Failed")
		}
		s.Say(number, "me", in["body"].(string))
		return answer{status: http.StatusCreated, body: s.Talk[number][len(s.Talk[number])-1]}
	case "POST labels":
		names, _ := in["labels"].([]any)
		for _, name := range names {
			issue["labels"] = append(issue["labels"].([]any), Object{"name": name})
		}
		issue["updated_at"] = now()
		return answer{status: http.StatusOK, body: issue["labels"]}
	case "PATCH ":
		for _, key := range []string{"state", "state_reason"} {
			if v, has := in[key]; has {
				issue[key] = v
			}
		}
		issue["updated_at"] = now()
		return answer{status: http.StatusOK, body: issue}
	}
	if r.Method == http.MethodDelete && len(parts) == 4 && parts[2] == "labels" {
		issue["labels"] = slices.DeleteFunc(issue["labels"].([]any), func(l any) bool {
			return l.(Object)["name"] == parts[3]
		})
		issue["updated_at"] = now()
		return answer{status: http.StatusOK, body: issue["labels"]}
	}
	return refused(http.StatusNotFound, "Not Found")
}

// matches applies the filters of a list of issues.
func matches(r *http.Request, issue Object) bool {
	q := r.URL.Query()
	if state := q.Get("state"); state != "all" && issue["state"] != "open" {
		return false
	}
	for label := range strings.SplitSeq(q.Get("labels"), ",") {
		if label != "" && !slices.ContainsFunc(issue["labels"].([]any), func(l any) bool {
			return l.(Object)["name"] == label
		}) {
			return false
		}
	}
	who := q.Get("assignee")
	return who == "" || who == "*" ||
		slices.ContainsFunc(issue["assignees"].([]any), func(a any) bool {
			return a.(Object)["login"] == who
		})
}
