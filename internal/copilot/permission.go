package copilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protect"
	"tapgw/internal/visible"
	"tapgw/internal/weburl"
)

// Permissions: each request of the runtime is allowed, denied or put to a person.

// settingOf returns the setting of p for a kind of request: [configs.Allow], [configs.Deny],
// [configs.Ask] or [configs.CWD]. It returns false for a kind that no key of [copilot.permissions]
// covers.
func settingOf(
	p *configs.Permissions, kind rpc.PermissionRequestKind,
) (setting string, known bool) {
	setting, known = map[rpc.PermissionRequestKind]string{
		rpc.PermissionRequestKindShell:      p.Shell,
		rpc.PermissionRequestKindWrite:      p.Write,
		rpc.PermissionRequestKindRead:       p.Read,
		rpc.PermissionRequestKindURL:        p.URL,
		rpc.PermissionRequestKindMCP:        p.MCP,
		rpc.PermissionRequestKindCustomTool: p.CustomTool,
		rpc.PermissionRequestKindMemory:     p.Memory,
		rpc.PermissionRequestKindHook:       p.Hook,
	}[kind]
	return setting, known
}

// patternVerdict judges a request by the patterns of p alone. why is the reason to give when the
// verdict is refused.
func patternVerdict(
	p *configs.Permissions, req sdk.PermissionRequest, cwd string,
) (v verdict, why string) {
	forbids := func(key string) string {
		return key + " in [copilot.permissions] of tapgw.toml forbids it"
	}
	switch req := req.(type) {
	case *rpc.PermissionRequestShell:
		v, pattern := commandVerdict(req, p.AllowCommands, p.DenyCommands)
		return v, fmt.Sprintf("%s: %q matches", forbids("deny_commands"), pattern)
	case *rpc.PermissionRequestRead:
		if isPerProcess(absolute(req.Path, cwd)) {
			return refused, perProcessReason
		}
		return pathVerdict(req.Path, cwd, p.AllowReadPaths, p.DenyPaths), forbids("deny_paths")
	case *rpc.PermissionRequestWrite:
		if isPerProcess(absolute(req.FileName, cwd)) {
			return refused, perProcessReason
		}
		return pathVerdict(req.FileName, cwd, p.AllowWritePaths, p.DenyPaths), forbids("deny_paths")
	case *rpc.PermissionRequestURL:
		if _, err := weburl.Parse(req.URL); err != nil {
			return refused, "the URL can't be judged: " + err.Error()
		}
		return urlVerdict(req.URL, p.AllowURLs, p.DenyURLs), forbids("deny_urls")
	}
	return noVerdict, ""
}

// deferToPump leaves a request for permission unanswered. The pump answers it, because it sees
// requests in order with the events that end them.
func deferToPump(sdk.PermissionRequest, sdk.PermissionInvocation) (rpc.PermissionDecision, error) {
	return &rpc.PermissionDecisionNoResult{}, nil
}

// answerPermission answers a request for permission on a goroutine of its own. The pump calls it. u
// is the call that needs the permission; nil if no such call runs.
func (s *session) answerPermission(c *conn, d *rpc.PermissionRequestedData, u *toolUse) {
	if s.joined != 0 || deref(d.ResolvedByHook) {
		return
	}
	s.whilePending(c, d.RequestID, func(ctx context.Context) {
		decision := s.decide(ctx, d.PermissionRequest, u)
		if ctx.Err() != nil {
			return // the runtime no longer waits
		}
		_, err := ask(s.ctx, c.process, askTimeout,
			func(ctx context.Context) (*rpc.PermissionRequestResult, error) {
				return c.sdk.RPC.Permissions.HandlePendingPermissionRequest(
					ctx, &rpc.PermissionDecisionRequest{RequestID: d.RequestID, Result: decision},
				)
			})
		if err != nil {
			s.log.Warn("a permission did not reach the runtime", "error", err)
		}
	})
}

// PermitShell is [gateway.HostInfo].PermitShell.
func (s *session) PermitShell(ctx context.Context, c gateway.ShellCommand) (denial string) {
	return denialOf(s.decide(ctx, &rpc.PermissionRequestShell{FullCommandText: c.Line(),
		Intention: c.Why}, nil))
}

// PermitRead is [gateway.HostInfo].PermitRead.
func (s *session) PermitRead(ctx context.Context, path, why string) (denial string) {
	return denialOf(s.decide(ctx, &rpc.PermissionRequestRead{Path: path, Intention: why}, nil))
}

// decide answers a request by the policy, or by asking a person. u is the call that needs the
// permission; nil if the request does not come from one.
func (s *session) decide(
	ctx context.Context, req sdk.PermissionRequest, u *toolUse,
) rpc.PermissionDecision {
	if req == nil {
		return &rpc.PermissionDecisionUserNotAvailable{}
	}
	reject := func(reason string) rpc.PermissionDecision {
		s.note(adminapi.LogWarning, fmt.Sprintf("%s request denied: %s", req.Kind(), reason))
		return &rpc.PermissionDecisionReject{Feedback: &reason}
	}
	req = s.requested(req)
	others, err := s.relatedRequests(req, u)
	if err != nil {
		return reject(err.Error())
	}
	for _, r := range append([]sdk.PermissionRequest{req}, others.judged...) {
		denial, _ := s.policy(r)
		if denial = cmp.Or(denial, s.searchDenial(r, u)); denial != "" {
			return reject(denial)
		}
	}
	asked := append([]sdk.PermissionRequest{req}, others.asked...)
	if !slices.ContainsFunc(asked, s.mustAsk) || s.wasCreateAllowed(req) {
		return &rpc.PermissionDecisionApproveOnce{}
	}
	if !s.awaitCalls() {
		return &rpc.PermissionDecisionUserNotAvailable{}
	}
	provider, identity := s.toolProvider(req)
	q := permissionQuestion(req, provider, others.asked...)
	why := ""
	for _, r := range asked {
		why = cmp.Or(why, s.protectedReason(r))
	}
	if why != "" {
		q.Message += ". It is protected: " + why
	}
	q.Timeout = s.o.AnswerTimeout
	answer, err := s.calls.Ask(ctx, q)
	switch {
	case errors.Is(err, gateway.ErrUnanswered) && why != "":
		return reject("it is protected, " + why +
			"; a person must allow such a write, and nobody answered in time")
	case errors.Is(err, gateway.ErrUnanswered):
		return reject("nobody answered in time (answer_timeout in [copilot] of tapgw.toml)")
	case ctx.Err() != nil: // the runtime no longer waits
		return &rpc.PermissionDecisionUserNotAvailable{}
	case err != nil:
		return reject(err.Error())
	case answer.Denied():
		reason := cmp.Or(answer.Text, "the user denied it")
		// the timeline shows the answer already
		return &rpc.PermissionDecisionReject{Feedback: &reason}
	}
	if _, now := s.toolProvider(req); now != identity {
		return reject(
			fmt.Sprintf("the answer was for the tool of provider %s, which is not there any more; "+
				"call it again if another one has it", provider))
	}
	if answer.Decision == adminapi.DecideSession {
		for _, r := range asked {
			s.approve(r)
		}
	}
	return &rpc.PermissionDecisionApproveOnce{}
}

// mustAsk reports whether a person must be asked about a request that the policy does not deny.
func (s *session) mustAsk(req sdk.PermissionRequest) bool {
	_, mustAsk := s.policy(req)
	return mustAsk && !s.isApproved(req)
}

// policy returns why a request is denied, or else whether a person must be asked.
func (s *session) policy(req sdk.PermissionRequest) (denial string, mustAsk bool) {
	p := s.permissions()
	kind := req.Kind()
	setting, known := settingOf(p, kind)
	if !known {
		return fmt.Sprintf("the gateway never allows requests of kind %q", kind), false
	}
	patterns, why := patternVerdict(p, req, s.cwd)
	switch {
	case patterns == refused:
		return why, false
	case req.RequiresManagedApproval(): // an administrator's rule; it overrides patterns that allow
		if setting == configs.Deny {
			return "the gateway's policy does not allow it: " + howToAllow(p, req), false
		}
		return "", true
	case s.protectedReason(req) != "" && (patterns == granted || setting != configs.Deny):
		return "", true
	case patterns == granted, setting == configs.Allow, s.isAttached(req):
		return "", false
	case setting == configs.Deny:
		return "the gateway's policy does not allow it: " + howToAllow(p, req), false
	}
	read, ok := req.(*rpc.PermissionRequestRead)
	if ok && inside(absolute(read.Path, s.cwd), s.outputDir) {
		return "", false
	}
	if setting == configs.Ask {
		return "", true
	}
	if ok && inside(absolute(read.Path, s.cwd), s.cwd) {
		if s.containsTokens(absolute(read.Path, s.cwd)) {
			return fmt.Sprintf(
				"%s is, or holds, files with the gateway's tokens, which its policy allows nobody "+
					"to read: name a file or directory that holds none; %s", read.Path,
				howToAllow(p, req)), false
		}
		return "", false
	}
	return fmt.Sprintf("the gateway's policy allows reading inside %s only: %s", s.cwd,
		howToAllow(p, req)), false
}

// containsTokens reports whether a path is or contains a file with a token of the gateway or of
// another session's shell. The runtime's search tools see no hidden files in directories above, so
// a search of the working directory itself is allowed.
func (s *session) containsTokens(path string) bool {
	dirs := s.o.Secrets
	if s.outputDir != "" {
		dirs = append(slices.Clone(dirs), filepath.Dir(s.outputDir))
	}
	for _, dir := range dirs {
		dir, err := protect.Resolve(dir)
		if err != nil {
			return true
		}
		for _, path := range []string{path, filepath.Clean(path)} {
			target, err := protect.Resolve(path)
			if err != nil {
				return true
			}
			for _, way := range [][2]string{{dir, target}, {target, dir}} {
				if rel, err := filepath.Rel(way[0], way[1]); err == nil && filepath.IsLocal(rel) {
					return true
				}
			}
		}
	}
	return false
}

// protectedReason returns why a write needs a person's permission: files there make programs run.
// It is "" for other requests.
func (s *session) protectedReason(req sdk.PermissionRequest) string {
	write, ok := req.(*rpc.PermissionRequestWrite)
	if !ok {
		return ""
	}
	var dirs []string
	if s.o.Sources != nil {
		dirs = s.o.Sources()
	}
	return protect.Why(absolute(write.FileName, s.cwd), dirs...)
}

// approval identifies the requests that one answer for the session covers: the same command line,
// file, host, or tool of the same provider.
type approval struct {
	kind rpc.PermissionRequestKind
	what string // or the MCP server
	tool string
	// provider is the identity of the tool's provider: a tool of that name of another provider
	// needs a new answer.
	provider string
}

// approvalOf returns the approval that an answer for the session to a request gives.
func (s *session) approvalOf(req sdk.PermissionRequest) approval {
	a := approval{kind: req.Kind()}
	switch req := req.(type) {
	case *rpc.PermissionRequestShell:
		a.what = req.FullCommandText
	case *rpc.PermissionRequestRead:
		a.what = s.file(req.Path)
	case *rpc.PermissionRequestWrite:
		a.what = s.file(req.FileName)
	case *rpc.PermissionRequestURL:
		a.what = req.URL
		if u, err := weburl.Parse(req.URL); err == nil && u.Host != "" {
			a.what = u.Scheme + "://" + u.Host + " " + u.Port
		}
	case *rpc.PermissionRequestMCP:
		a.what, a.tool = req.ServerName, req.ToolName
	case *rpc.PermissionRequestCustomTool:
		a.tool = req.ToolName
	case *rpc.PermissionRequestHook:
		a.tool = req.ToolName
	}
	_, a.provider = s.toolProvider(req)
	return a
}

// toolProvider returns the provider whose tool a request is about, by name and identity; both are
// "" for other requests.
func (s *session) toolProvider(req sdk.PermissionRequest) (name, identity string) {
	switch req := req.(type) {
	case *rpc.PermissionRequestCustomTool:
		return s.calls.ToolProvider(req.ToolName)
	case *rpc.PermissionRequestHook:
		return s.calls.ToolProvider(req.ToolName)
	}
	return "", ""
}

// file returns where a path leads now, symlinks resolved, or the absolute path if that fails.
func (s *session) file(path string) string {
	path = absolute(path, s.cwd)
	if target, err := protect.Resolve(path); err == nil {
		return target
	}
	return path
}

func (s *session) approve(req sdk.PermissionRequest) {
	same := s.approvalOf(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.approvals == nil {
		s.approvals = map[approval]bool{}
	}
	s.approvals[same] = true
}

// forgetApprovals removes the approvals of tools that another provider has now. When the approved
// provider comes back, a person is asked again.
func (s *session) forgetApprovals() {
	s.mu.Lock()
	given := slices.Collect(maps.Keys(s.approvals))
	s.mu.Unlock()
	for _, a := range given {
		if a.provider == "" {
			continue
		}
		if _, now := s.calls.ToolProvider(a.tool); now != "" && now != a.provider {
			s.mu.Lock()
			delete(s.approvals, a)
			s.mu.Unlock()
		}
	}
}

// isApproved reports whether a person approved such a request for the session. For requests that an
// administrator wants approved, and for writes to protected files, a person is asked each time.
func (s *session) isApproved(req sdk.PermissionRequest) bool {
	if req.RequiresManagedApproval() || s.protectedReason(req) != "" {
		return false
	}
	s.forgetApprovals()
	s.mu.Lock()
	isNone := len(s.approvals) == 0
	s.mu.Unlock()
	if isNone {
		return false // the gateway may not know the session yet
	}
	same := s.approvalOf(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.approvals[same]
}

// maxIntention bounds the model's reason in a question, in bytes.
const maxIntention = 300

// wording is the text of a request to a person: the question, everything that would be done, the
// model's reason, and the scope of an answer for the whole session.
type wording struct{ question, detail, reason, scope string }

// permissionQuestion puts a request to a person. It shows everything that would be done, because
// the person allows all of it. provider is the provider whose tool it is about, or ""; others are
// files that the write moves to the place of req.
func permissionQuestion(
	req sdk.PermissionRequest, provider string, others ...sdk.PermissionRequest,
) gateway.Question {
	var w wording
	tool := "this tool"
	if provider != "" {
		tool += " of provider " + visible.Line(provider)
	}
	switch req := req.(type) {
	case *rpc.PermissionRequestShell:
		w = wording{"May the session run this command?", req.FullCommandText, req.Intention,
			"this very command"}
		if warning := deref(req.Warning); warning != "" {
			w.detail += "\n" + warning
		}
	case *rpc.PermissionRequestRead:
		w = wording{"May the session read this?", visible.Line(req.Path), req.Intention,
			"this path"}
	case *rpc.PermissionRequestWrite:
		detail := visible.Line(req.FileName) + "\n" + req.Diff
		w = wording{"May the session write this file?", detail, req.Intention, "this file"}
		for _, other := range others {
			if from, ok := other.(*rpc.PermissionRequestWrite); ok {
				w.question = "May the session move this file?"
				w.detail = "from " + visible.Line(from.FileName) + "\nto " + w.detail
				w.scope = "both files"
			}
		}
	case *rpc.PermissionRequestURL:
		w = wording{"May the session fetch this?", visible.Line(req.URL), req.Intention,
			"this host"}
		if u, err := weburl.Parse(req.URL); err == nil && u.Href != req.URL {
			w.detail += "\nwhich is " + u.Href
		}
		if from := deref(req.RedirectedFrom); from != "" {
			w.detail += "\nredirected from " + visible.Line(from)
		}
	case *rpc.PermissionRequestMCP:
		detail := req.ServerName + ": " + req.ToolName + " " + string(rawJSON(req.Args))
		w = wording{question: "May the session call this MCP tool?", detail: detail,
			scope: "this tool"}
	case *rpc.PermissionRequestCustomTool:
		detail := req.ToolName + " " + string(rawJSON(req.Args))
		w = wording{question: "May the session call this tool?", detail: detail, scope: tool}
	case *rpc.PermissionRequestMemory:
		w = wording{question: "May the session remember this?", detail: req.Fact, scope: "memories"}
	case *rpc.PermissionRequestHook:
		detail := req.ToolName + " " + string(rawJSON(req.ToolArgs))
		w = wording{"May the session call this tool?", detail, deref(req.HookMessage), tool}
	}
	if w.reason != "" {
		reason := strings.Join(strings.Fields(visible.Ends(w.reason, maxIntention, 10)), " ")
		w.question += " It is to: " + visible.Line(reason)
	}
	return gateway.Question{
		Kind:    adminapi.QuestionPermission,
		Message: fmt.Sprintf("%s (session: %s from now on)", w.question, w.scope),
		Detail:  strings.TrimSpace(w.detail),
	}
}

// absolute makes a path absolute without cleaning it, because the meaning of ".." depends on the
// symlinks before it.
func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return dir + string(filepath.Separator) + path
}

// inside reports whether a path lies in a directory after symlinks are resolved. It must lie there
// for both meanings of "..": the parent of a symlink's target, as for the system, and the parent of
// the symlink, as for programs that clean paths first.
func inside(path, dir string) bool {
	if dir == "" {
		return false
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for _, path := range []string{path, filepath.Clean(path)} {
		target, err := protect.Resolve(path)
		if err != nil {
			return false
		}
		if rel, err := filepath.Rel(dir, target); err != nil || !filepath.IsLocal(rel) {
			return false
		}
	}
	return true
}

// perProcess are places that mean something else to each process. The runtime, and the programs
// that it starts in the session's directory, find other files there than the gateway does.
var perProcess = []string{"/proc/self", "/proc/thread-self", "/dev/fd"}

const perProcessReason = "the path leads through /proc/self or its like, which is another place " +
	"for each process, so " +
	"it can't be judged: name the place itself"

// isPerProcess reports whether an absolute path leads through a place like /proc/self, by links
// too. It checks both meanings of ".."; see [inside].
func isPerProcess(path string) bool {
	return leadsThrough(path, perProcess) || leadsThrough(filepath.Clean(path), perProcess)
}

// leadsThrough follows a path as the system does, and reports whether it comes to one of places.
func leadsThrough(path string, places []string) bool {
	const maxLinks = 255 // more than any system follows
	at, links := string(filepath.Separator), 0
	for rest := path; rest != ""; {
		part := ""
		part, rest, _ = strings.Cut(rest, string(filepath.Separator))
		at = filepath.Join(at, part)
		if slices.Contains(places, at) {
			return true
		}
		to, err := os.Readlink(at)
		if err != nil {
			continue
		}
		if links++; links > maxLinks {
			return false // it leads nowhere
		}
		if at = filepath.Dir(at); filepath.IsAbs(to) {
			at = string(filepath.Separator)
		}
		rest = to + string(filepath.Separator) + rest
	}
	return false
}
