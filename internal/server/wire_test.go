package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"tapgw/internal/server"
)

var update = server.Update

// The wire corpus: testdata/wire/*.txtar, each a conversation. The comment is
// prose; the file "script" holds what is done, a line each, and under each line
// what came of it:
//
//	session ID [label=L] [cwd=D] [no-send] [no-log] [no-interrupt] [hooks] [live]
//	                              a session begins
//	end ID | interrupt ID | idle ID | busy ID | foreground ID
//	relabel ID LABEL              its label changes
//	spawn ID                      a token for that session: $spawn
//	connect NAME [foreign]        a provider connects
//	join NAME SESSION [TOOL[:TIMEOUT]…]   a provider connects and binds; of what it
//	                              hears only the ack is written
//	connecthost NAME              a session host connects (WebSocket only)
//	NAME> TEXT                    it sends TEXT; $names stand for earlier values,
//	                              $tools(N) for N tools, $x(N) for N letters
//	NAME>pad N TEXT               it sends TEXT, N bytes long: $pad is as long as it takes
//	NAME>hex DIGITS               it sends these bytes as text
//	NAME>binary [TEXT]            it sends a binary frame: the text, or what is no UTF-8
//	NAME>close                    its connection is gone
//	call ID SESSION TOOL [JSON]   the session calls a tool
//	callfor DURATION ID SESSION TOOL [JSON]   and waits so long at most
//	cancel ID                     and gives it up
//	pretool SESSION TOOL [JSON]   the session asks before one of its own calls
//	userprompt SESSION SOURCE     the session asks what to add to a prompt
//	transform SESSION JSON        the session asks for its system prompt
//	push SESSION JSON             somebody pushes on the admin side
//	prompt SESSION TEXT           the user prompts
//	timeline SESSION              what its timeline got since last asked
//	history SESSION [STREAM…]     what its streams hold
//	providers                     who is connected
//	stop NAME                     the user stops a provider
//	drain                         the gateway ends everything
//	wait DURATION                 time passes
//	times N [every DURATION] LINE the line, N times, $n being the number
//
// and comes of it: "NAME< JSON", "NAME<close CODE REASON", "ID= JSON" for the
// outcome of a call, "SESSION: …" for what its host was told, "(×N)" behind what
// came N times in a row. Values that differ from run to run are written as
// $names. Lines that begin with # are comments.
func TestWireCorpus(t *testing.T) {
	files, err := filepath.Glob("../../testdata/wire/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, file := range files {
		if testing.Short() && filepath.Base(file) == "sizes.txtar" {
			continue // its messages of many MiB take seconds
		}
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script := archive.Files[0]
		for _, over := range []string{"in-process", "websocket", twoGateways} {
			if over != "websocket" && strings.Contains("\n"+string(script.Data), "\nconnecthost ") {
				continue
			}
			name := strings.TrimSuffix(filepath.Base(file), ".txtar")
			if over == twoGateways && notElsewhere[name] != "" {
				continue
			}
			t.Run(name+"/"+over, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					got := playScript(t, over, string(script.Data))
					if *update && over == "websocket" {
						archive.Files[0].Data = []byte(got)
						if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
							t.Fatal(err)
						}
						return
					}
					if diff := cmp.Diff(string(script.Data), got); diff != "" && !*update {
						t.Errorf("%s (-want +got); run with -update and review if it is right:\n%s",
							file, diff)
					}
				})
			})
		}
	}
}

// playScript runs a script and returns it with the output of each line below it.
func playScript(t *testing.T, over, script string) string {
	s := newStage(t, over)
	defer s.close()
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if isOutput(line) {
			continue
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var came []string
		for _, step := range expand(t, line) {
			if err := s.do(step); err != nil {
				t.Fatalf("%s: %v", step, err)
			}
			synctest.Wait()
			came = append(came, s.collect()...)
		}
		if strings.HasPrefix(line, "join ") {
			came = slices.DeleteFunc(came, func(o string) bool {
				return !strings.Contains(o, `"hello.ack"`)
			})
		}
		out.WriteString(foldRepeats(came))
	}
	return out.String()
}

var repeated = regexp.MustCompile(`^times (\d+) (?:every (\S+) )?(.+)$`)

// expand returns the steps that a line stands for.
func expand(t *testing.T, line string) []string {
	if rest, ok := strings.CutPrefix(line, "join "); ok {
		return joinSteps(strings.Fields(rest))
	}
	m := repeated.FindStringSubmatch(line)
	if m == nil {
		return []string{line}
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for i := range n {
		if m[2] != "" && i > 0 {
			steps = append(steps, "wait "+m[2])
		}
		steps = append(steps, strings.ReplaceAll(m[3], "$n", strconv.Itoa(i+1)))
	}
	return steps
}

// joinSteps returns the steps in which a provider with some tools joins a session.
func joinSteps(args []string) []string {
	tools := make([]string, 0, len(args))
	for _, a := range args[2:] {
		name, timeout, timed := strings.Cut(a, ":")
		if timed {
			timeout = `,"timeout":` + timeout
		}
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"d","parameters":{}%s}`, name,
			timeout))
	}
	return []string{
		"connect " + args[0],
		args[0] + `> {"type":"auth","token":"$instance"}`,
		fmt.Sprintf(`%s> {"type":"hello","name":%q,"protocolVersion":2,"session":%q,"tools":[%s]}`,
			args[0], args[0], args[1], strings.Join(tools, ",")),
	}
}

// foldRepeats writes lines, and lines that repeat in a row only once, with their number.
func foldRepeats(lines []string) string {
	var out strings.Builder
	for i := 0; i < len(lines); {
		n := 1
		for i+n < len(lines) && lines[i+n] == lines[i] {
			n++
		}
		out.WriteString(lines[i])
		if n > 1 {
			fmt.Fprintf(&out, " (×%d)", n)
		}
		out.WriteString("\n")
		i += n
	}
	return out.String()
}

var outputLine = regexp.MustCompile(`^\S+(< |<close |= |: )`)

func isOutput(line string) bool { return outputLine.MatchString(line) }

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "127.0.0.1:9400" }
