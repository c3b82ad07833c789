package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"tapgw/internal/adminapi"
	"tapgw/internal/daemon"
	"tapgw/internal/proc"
)

// wait waits until is says nothing more is missing.
func wait(ts *testscript.TestScript, is func() (missing string)) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	missing := ""
	if err := daemon.Poll(ctx, func() bool { missing = is(); return missing == "" }); err != nil {
		ts.Fatalf("%s", missing)
	}
}

// tools NAME TOOL… waits until the tools of a gateway's sessions are these.
func cmdTools(ts *testscript.TestScript, _ bool, args []string) {
	c := gatewayClient(ts, ts.Getenv(args[0]+"_URL"))
	defer c.Close()
	wait(ts, func() string {
		tools, err := c.Tools(context.Background(), "")
		ts.Check(err)
		names := []string{}
		for _, t := range tools {
			names = append(names, t.Name)
		}
		if slices.Sort(names); !slices.Equal(names, args[1:]) {
			return fmt.Sprintf("the tools are %q, want %q: %s", names, args[1:],
				stderr(ts, args[0]))
		}
		return ""
	})
}

// faults NAME [REGEXP] waits until a fault in the gateway's status matches, or
// there is none.
func cmdFaults(ts *testscript.TestScript, _ bool, args []string) {
	c := gatewayClient(ts, ts.Getenv(args[0]+"_URL"))
	defer c.Close()
	wait(ts, func() string {
		s, err := c.Status(context.Background())
		ts.Check(err)
		for _, f := range s.Faults {
			line := fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
			if len(args) > 1 && regexp.MustCompile(args[1]).MatchString(line) {
				return ""
			}
		}
		if len(args) == 1 && len(s.Faults) == 0 {
			return ""
		}
		return fmt.Sprintf("the faults are %v, want %q", s.Faults, args[1:])
	})
}

// post NAME PATH ANSWER makes a request of the admin API.
func cmdPost(ts *testscript.TestScript, _ bool, args []string) {
	token, err := os.ReadFile(daemon.Dir(ts.Getenv("STATE")).AdminToken())
	ts.Check(err)
	url := "http://" + ts.Getenv(args[0]+"_ADDR") + "/api/v1" + args[1]
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("{}"))
	ts.Check(err)
	req.Header.Set("Authorization", "Bearer "+string(token))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if got := strings.TrimSpace(string(body)); got != args[2] {
		ts.Fatalf("%s answered %s %s, want %s", args[1], resp.Status, got, args[2])
	}
}

// asks NAME STATUS PATH HOST waits until a request without a token, for a Host, is
// answered with a status.
func cmdAsks(ts *testscript.TestScript, _ bool, args []string) {
	wait(ts, func() string {
		req, err := http.NewRequest(http.MethodGet, "http://"+ts.Getenv(args[0]+"_ADDR")+args[2],
			nil)
		ts.Check(err)
		req.Host = args[3]
		resp, err := http.DefaultClient.Do(req)
		ts.Check(err)
		_ = resp.Body.Close()
		if got := strconv.Itoa(resp.StatusCode); got != args[1] {
			return fmt.Sprintf("%s of %s answers %s, want %s: %s", args[2], args[3], got, args[1],
				stderr(ts, args[0]))
		}
		return ""
	})
}

// times NAME N REGEXP checks how many lines of the log so far match.
func cmdTimes(ts *testscript.TestScript, _ bool, args []string) {
	match, n := regexp.MustCompile(args[2]), 0
	for _, line := range of(ts, args[0]).lines(proc.Stderr) {
		if match.MatchString(line) {
			n++
		}
	}
	if strconv.Itoa(n) != args[1] {
		ts.Fatalf("%d lines match %s, want %s", n, args[2], args[1])
	}
}

// waitfile FILE waits until a file is there.
func cmdWaitFile(ts *testscript.TestScript, _ bool, args []string) {
	wait(ts, func() string {
		if _, err := os.Stat(ts.MkAbs(args[0])); err != nil {
			return err.Error()
		}
		return ""
	})
}

// calls NAME TOOL ARGS WANT calls a tool in a gateway's session and compares the text of its
// result.
func cmdCalls(ts *testscript.TestScript, _ bool, args []string) {
	c := gatewayClient(ts, ts.Getenv(args[0]+"_URL"))
	defer c.Close()
	sessions, err := c.Sessions(context.Background())
	ts.Check(err)
	r, err := c.Call(context.Background(), sessions[0].ID, args[1],
		adminapi.Call{Args: []byte(args[2])})
	ts.Check(err)
	if got := string(r.Data); got != args[3] {
		ts.Fatalf("%s %s: got %s, want %s", args[1], args[2], got, args[3])
	}
}
