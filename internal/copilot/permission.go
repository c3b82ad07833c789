package copilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// settingOf returns what p says of a kind of request: [configs.Allow], [configs.Deny], [configs.Ask] or
// [configs.CWD]. It returns false for a kind that no key of [copilot.permissions] covers.
func settingOf(p *configs.Permissions, kind rpc.PermissionRequestKind) (string, bool) {
	switch kind {
	case rpc.PermissionRequestKindShell:
		return p.Shell, true
	case rpc.PermissionRequestKindWrite:
		return p.Write, true
	case rpc.PermissionRequestKindRead:
		return p.Read, true
	case rpc.PermissionRequestKindURL:
		return p.URL, true
	case rpc.PermissionRequestKindMCP:
		return p.MCP, true
	case rpc.PermissionRequestKindCustomTool:
		return p.CustomTool, true
	case rpc.PermissionRequestKindMemory:
		return p.Memory, true
	case rpc.PermissionRequestKindHook:
		return p.Hook, true
	}
	return "", false
}

// patternVerdict judges a request by the patterns of p alone. why is the reason to give when the verdict is refused.
func patternVerdict(p *configs.Permissions, req sdk.PermissionRequest, cwd string) (v verdict, why string) {
	forbids := func(key string) string { return key + " in [copilot.permissions] of tapgw.toml forbids it" }
	switch req := req.(type) {
	case *rpc.PermissionRequestShell:
		return commandVerdict(req, p.AllowCommands, p.DenyCommands), forbids("deny_commands")
	case *rpc.PermissionRequestRead:
		return pathVerdict(req.Path, cwd, p.AllowReadPaths, p.DenyPaths), forbids("deny_paths")
	case *rpc.PermissionRequestWrite:
		return pathVerdict(req.FileName, cwd, p.AllowWritePaths, p.DenyPaths), forbids("deny_paths")
	case *rpc.PermissionRequestURL:
		if _, err := weburl.Parse(req.URL); err != nil {
			return refused, "the URL can't be judged: " + err.Error()
		}
		return urlVerdict(req.URL, p.AllowURLs, p.DenyURLs), forbids("deny_urls")
	}
	return noVerdict, ""
}

// deferToPump lets a request for permission be answered by the pump, which sees them in
// order with what ends them.
func deferToPump(sdk.PermissionRequest, sdk.PermissionInvocation) (rpc.PermissionDecision, error) {
	return &rpc.PermissionDecisionNoResult{}, nil
}

// answerPermission answers the runtime's question whether something may be done, on a
// goroutine of its own. Called by the pump.
func (s *session) answerPermission(c *conn, d *rpc.PermissionRequestedData) {
	if d.ResolvedByHook != nil && *d.ResolvedByHook {
		return
	}
	s.whilePending(c, d.RequestID, func(ctx context.Context) {
		decision := s.decide(ctx, d.PermissionRequest)
		if ctx.Err() != nil {
			return // nobody waits any more
		}
		_, err := ask(s.ctx, c.process, askTimeout, func(ctx context.Context) (*rpc.PermissionRequestResult, error) {
			return c.sdk.RPC.Permissions.HandlePendingPermissionRequest(
				ctx, &rpc.PermissionDecisionRequest{RequestID: d.RequestID, Result: decision},
			)
		})
		if err != nil {
			s.log.Warn("a permission did not reach the runtime", "error", err)
		}
	})
}

// decide answers a request by the policy, or by what a person says.
func (s *session) decide(ctx context.Context, req sdk.PermissionRequest) rpc.PermissionDecision {
	if req == nil {
		return &rpc.PermissionDecisionUserNotAvailable{}
	}
	reject := func(reason string) rpc.PermissionDecision {
		s.note(gateway.LogWarning, fmt.Sprintf("%s request denied: %s", req.Kind(), reason))
		return &rpc.PermissionDecisionReject{Feedback: &reason}
	}
	denial, mustAsk := s.policy(req)
	switch {
	case denial != "":
		return reject(denial)
	case !mustAsk, s.isApproved(req):
		return &rpc.PermissionDecisionApproveOnce{}
	}
	if !s.awaitCalls() {
		return &rpc.PermissionDecisionUserNotAvailable{}
	}
	q := permissionQuestion(req)
	why := s.protectedReason(req)
	if why != "" {
		q.Message += ". It is protected: " + why
	}
	q.Timeout = s.o.AnswerTimeout
	answer, err := s.calls.Ask(ctx, q)
	switch {
	case errors.Is(err, gateway.ErrUnanswered) && why != "":
		return reject("it is protected, " + why + "; a person must allow such a write, and nobody answered in time")
	case errors.Is(err, gateway.ErrUnanswered):
		return reject("nobody answered in time (answer_timeout in [copilot] of tapgw.toml)")
	case ctx.Err() != nil: // nobody waits for the decision
		return &rpc.PermissionDecisionUserNotAvailable{}
	case err != nil:
		return reject(err.Error())
	case answer.Denied():
		reason := cmp.Or(answer.Text, "the user denied it")
		return &rpc.PermissionDecisionReject{Feedback: &reason} // the timeline has it
	case answer.Decision == adminapi.DecideSession:
		s.approve(req)
	}
	return &rpc.PermissionDecisionApproveOnce{}
}

// policy says why a request is denied, else whether a person must be asked.
func (s *session) policy(req sdk.PermissionRequest) (denial string, mustAsk bool) {
	p := &s.o.Permissions
	kind := req.Kind()
	setting, known := settingOf(p, kind)
	how := fmt.Sprintf(`set %s = "allow" in [copilot.permissions] of tapgw.toml to allow it`, kind)
	notAllowed := "the gateway's policy does not allow it; " + how
	if !known {
		return fmt.Sprintf("the gateway never allows requests of kind %q", kind), false
	}
	patterns, why := patternVerdict(p, req, s.cwd)
	switch {
	case patterns == refused:
		return why, false
	case req.RequiresManagedApproval(): // whatever the patterns allow
		if setting == configs.Deny {
			return notAllowed, false
		}
		return "", true
	case s.protectedReason(req) != "" && (patterns == granted || setting != configs.Deny): // whatever they allow
		return "", true
	case patterns == granted, setting == configs.Allow, s.isAttached(req):
		return "", false
	case setting == configs.Deny:
		return notAllowed, false
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
				"%s is, or holds, files with the gateway's tokens, which its policy allows nobody to read: name a file or directory that holds none; %s",
				read.Path, how,
			), false
		}
		return "", false
	}
	return fmt.Sprintf("the gateway's policy allows reading inside %s only; %s everywhere", s.cwd, how), false
}

// containsTokens reports whether a path is, or holds, a file with a token of the gateway's
// or of another session's shell. What looks into the working directory itself may: from
// above, its tools see no hidden files.
func (s *session) containsTokens(path string) bool {
	for _, dir := range append([]string{filepath.Dir(s.outputDir)}, s.o.Secrets...) {
		dir, err := resolve(dir)
		if err != nil {
			return true
		}
		for _, path := range []string{path, filepath.Clean(path)} {
			target, err := resolve(path)
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

// protectedReason says why a request is to write where files make programs run; "" for
// one that is not.
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

// approvalKey is what a request has in common with those that its approval for the session
// is for: precisely the command, the file, the host or the tool.
func (s *session) approvalKey(req sdk.PermissionRequest) string {
	what := ""
	switch req := req.(type) {
	case *rpc.PermissionRequestShell:
		what = req.FullCommandText
	case *rpc.PermissionRequestRead:
		what = s.file(req.Path)
	case *rpc.PermissionRequestWrite:
		what = s.file(req.FileName)
	case *rpc.PermissionRequestURL:
		what = req.URL
		if u, err := weburl.Parse(req.URL); err == nil && u.Host != "" {
			what = u.Scheme + "://" + u.Host + " " + u.Port
		}
	case *rpc.PermissionRequestMCP:
		what = req.ServerName + " " + req.ToolName
	case *rpc.PermissionRequestCustomTool:
		what = req.ToolName
	case *rpc.PermissionRequestHook:
		what = req.ToolName
	}
	return string(req.Kind()) + " " + what
}

// file is a path as approvals know it: where it leads now.
func (s *session) file(path string) string {
	path = absolute(path, s.cwd)
	if target, err := resolve(path); err == nil {
		return target
	}
	return path
}

func (s *session) approve(req sdk.PermissionRequest) {
	same := s.approvalKey(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.approvals == nil {
		s.approvals = map[string]bool{}
	}
	s.approvals[same] = true
}

// isApproved reports whether a person approved a request for the session. What an
// administrator wants to be asked about, and writes where files make programs run,
// are asked each time.
func (s *session) isApproved(req sdk.PermissionRequest) bool {
	if req.RequiresManagedApproval() || s.protectedReason(req) != "" {
		return false
	}
	same := s.approvalKey(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.approvals[same]
}

// maxIntention bounds what the model says of its reasons, in bytes.
const maxIntention = 300

// permissionQuestion words a request for a person: all of what would be done, since
// what they allow is what they see.
func permissionQuestion(req sdk.PermissionRequest) gateway.Question {
	message, detail, intention, session := "", "", "", ""
	switch req := req.(type) {
	case *rpc.PermissionRequestShell:
		message, detail, intention, session = "May the session run this command?", req.FullCommandText, req.Intention, "this very command"
		if w := deref(req.Warning); w != "" {
			detail += "\n" + w
		}
	case *rpc.PermissionRequestRead:
		message, detail, intention, session = "May the session read this?", visible.Line(req.Path), req.Intention, "this path"
	case *rpc.PermissionRequestWrite:
		message, detail, intention, session = "May the session write this file?", visible.Line(req.FileName)+"\n"+req.Diff, req.Intention, "this file"
	case *rpc.PermissionRequestURL:
		message, detail, intention, session = "May the session fetch this?", visible.Line(req.URL), req.Intention, "this host"
		if u, err := weburl.Parse(req.URL); err == nil && u.Href != req.URL {
			detail += "\nwhich is " + u.Href
		}
		if from := deref(req.RedirectedFrom); from != "" {
			detail += "\nredirected from " + visible.Line(from)
		}
	case *rpc.PermissionRequestMCP:
		message, detail, session = "May the session call this MCP tool?", req.ServerName+": "+req.ToolName+" "+string(rawJSON(req.Args)), "this tool"
	case *rpc.PermissionRequestCustomTool:
		message, detail, session = "May the session call this tool?", req.ToolName+" "+string(rawJSON(req.Args)), "this tool"
	case *rpc.PermissionRequestMemory:
		message, detail, session = "May the session remember this?", req.Fact, "memories"
	case *rpc.PermissionRequestHook:
		message, detail, session = "May the session call this tool?", req.ToolName+" "+string(rawJSON(req.ToolArgs)), "this tool"
		intention = deref(req.HookMessage)
	}
	if intention != "" {
		message += " It is to: " + visible.Line(
			strings.Join(strings.Fields(visible.Ends(intention, maxIntention, 10)), " "),
		)
	}
	detail = strings.TrimSpace(detail)
	return gateway.Question{
		Kind: adminapi.QuestionPermission, Message: fmt.Sprintf("%s (session: %s from now on)", message, session),
		Detail: detail,
	}
}

// absolute makes a path absolute without cleaning it: what ".." means depends on
// the symlinks before it.
func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return dir + string(filepath.Separator) + path
}

// inside reports whether a path lies in a directory once symlinks are resolved,
// whether ".." is taken for the parent of where a symlink leads, as the system
// does, or of the symlink, as programs do that clean paths first.
func inside(path, dir string) bool {
	if dir == "" {
		return false
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for _, path := range []string{path, filepath.Clean(path)} {
		target, err := resolve(path)
		if err != nil {
			return false
		}
		if rel, err := filepath.Rel(dir, target); err != nil || !filepath.IsLocal(rel) {
			return false
		}
	}
	return true
}

// resolve resolves the symlinks of a path of which the end need not exist.
func resolve(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if err == nil || !os.IsNotExist(err) {
		return target, err
	}
	// A symlink to nowhere leads somewhere as soon as that is made.
	if info, lerr := os.Lstat(path); lerr == nil && info.Mode()&os.ModeSymlink != 0 {
		return "", err
	}
	parent, name := filepath.Split(strings.TrimRight(path, string(filepath.Separator)))
	if parent == "" || name == "" || name == ".." {
		return "", err
	}
	if parent, err = resolve(parent); err != nil {
		return "", err
	}
	return filepath.Join(parent, name), nil
}
