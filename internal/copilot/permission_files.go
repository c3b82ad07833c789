package copilot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/patch"
	"tapgw/internal/protocol"
)

// Some of the runtime's tools read a file before the runtime asks for permission, or change more
// files than the request names. Such calls are judged here.

// Names of the runtime's own tools that change files.
const (
	toolPatch  = "apply_patch"
	toolCreate = "create"
)

// editTools are all tools of the runtime that change files. They read the file, or look whether it
// is there, before the runtime asks for permission to write, and their errors tell the model what
// is in it. So a hook must judge their calls before they begin.
var editTools = []string{toolPatch, toolCreate, "edit", "str_replace_editor"}

// guardsEdits reports whether the session needs hooks for its own edits: reads are limited, and the
// model may be offered a tool that edits files.
func (s *session) guardsEdits() bool {
	p := s.permissions()
	if s.joined != 0 || p.Read == configs.Allow && len(p.DenyPaths) == 0 {
		return false
	}
	return slices.ContainsFunc(editTools, func(tool string) bool {
		names := []string{tool, "builtin:" + tool, "builtin:*", "*"}
		isIn := func(patterns []string) bool {
			return slices.ContainsFunc(names, func(name string) bool {
				return slices.Contains(patterns, name)
			})
		}
		c := s.baseConfig
		return (len(c.AvailableTools) == 0 || isIn(c.AvailableTools)) && !isIn(c.ExcludedTools)
	})
}

// toolUse is a call of a tool of the runtime's own.
type toolUse struct {
	tool string
	args protocol.Raw
}

// fileChange is the change of one file by a call. A file that moves has both paths.
type fileChange struct {
	path     string
	target   string // "" unless the file moves
	isCreate bool   // the file is not read
	content  string // of a file that create makes
}

// changes returns the changes of files that a call of one of the edit tools makes.
func (u toolUse) changes() (changes []fileChange, err error) {
	if u.tool == toolPatch {
		files, err := u.patch()
		if err != nil {
			return nil, fmt.Errorf("the patch can't be read, so nothing of it is allowed: %w", err)
		}
		for _, f := range files {
			changes = append(changes, fileChange{path: f.Path, target: f.Target,
				isCreate: f.Op == patch.Add})
		}
		return changes, nil
	}
	paths, err := u.paths()
	var create struct {
		Text string `json:"file_text"`
	}
	// without a text the question shows no content, and is asked again
	_ = json.Unmarshal(u.args, &create)
	for _, path := range paths {
		changes = append(changes, fileChange{path: path, isCreate: u.tool == toolCreate,
			content: create.Text})
	}
	return changes, err
}

// patch reads the patch of a call of apply_patch, which is the whole of the arguments, or their
// only field.
func (u toolUse) patch() ([]patch.File, error) {
	text, ok := protocol.Text(u.args)
	if !ok {
		err := protocol.Object(u.args, func(name string, v protocol.Raw) error {
			if ok {
				return errors.New("it has more than a patch")
			}
			text, ok = protocol.Text(v)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return patch.ReadStrict(text)
}

// paths returns the files that the arguments of a call name.
func (u toolUse) paths() ([]string, error) {
	paths, isUnclear := gateway.CallFiles(u.tool, u.args)
	if isUnclear {
		return nil, errors.New("it can't be read which files the call names, so nothing is allowed")
	}
	return paths, nil
}

// editDenial decides whether a call of the runtime's own edit tools may begin. Before the runtime
// asks for permission to write, such a call reads the file that it changes and reveals whether the
// file that it creates exists. The result is the reason of a denial; "" allows the call to begin.
func (s *session) editDenial(ctx context.Context, u toolUse) string {
	if !slices.Contains(editTools, u.tool) {
		return ""
	}
	changes, err := u.changes()
	switch {
	case err != nil:
		return err.Error()
	case len(changes) == 0:
		return "the call names no file by path, so nothing is allowed"
	}
	for _, c := range changes {
		denial := ""
		if c.isCreate {
			denial = s.createDenial(ctx, c.path, c.content)
		} else {
			denial = s.PermitRead(ctx, c.path, "edit it")
		}
		if denial == "" && c.target != "" {
			denial = s.createDenial(ctx, c.target, "")
		}
		if denial != "" {
			return denial
		}
	}
	return ""
}

// createDenial returns why the model may not learn whether a file is there: it may neither read nor
// write it. Where a person decides about the write, the question comes now, before the runtime
// looks. The runtime asks again with the content of the file; the answer counts for that too if it
// was shown.
func (s *session) createDenial(ctx context.Context, path, content string) string {
	if denial, mustAsk := s.policy(&rpc.PermissionRequestRead{Path: path}); denial == "" &&
		!mustAsk {
		return ""
	}
	write := &rpc.PermissionRequestWrite{FileName: path, Diff: content, NewFileContents: &content}
	mustAsk := s.mustAsk(write)
	denial := denialOf(s.decide(ctx, write, nil))
	if denial == "" && mustAsk && content != "" {
		s.mu.Lock()
		s.created = createdFile{s.file(path), content}
		s.mu.Unlock()
	}
	return denial
}

// createdFile is a file that a person allowed to create, with the content that the question showed.
type createdFile struct{ path, content string }

// wasCreateAllowed reports whether a person has just allowed this very file, and forgets the
// answer.
func (s *session) wasCreateAllowed(req sdk.PermissionRequest) bool {
	write, ok := req.(*rpc.PermissionRequestWrite)
	if !ok || deref(write.NewFileContents) == "" || write.RequiresManagedApproval() {
		return false
	}
	file := createdFile{s.file(write.FileName), *write.NewFileContents}
	s.mu.Lock()
	defer s.mu.Unlock()
	isSame := s.created == file
	if isSame {
		s.created = createdFile{}
	}
	return isSame
}

// denialOf is why a request was denied; "" if it was not.
func denialOf(d rpc.PermissionDecision) string {
	switch d := d.(type) {
	case *rpc.PermissionDecisionApproveOnce:
		return ""
	case *rpc.PermissionDecisionReject:
		return cmp.Or(deref(d.Feedback), "the gateway's policy does not allow it")
	}
	return "nobody is there who could allow it"
}

// related are further requests of a call: the runtime's own request names a single file, but the
// call may touch several.
type related struct {
	judged []sdk.PermissionRequest // if the policy denies one, the call is denied
	asked  []sdk.PermissionRequest // a person is asked about them with the runtime's own
}

// relatedRequests finds the requests that the runtime does not make: of the other files that the
// call names. The runtime asks about each file of a patch by the path where it will be; a person is
// asked with it about the path where it was.
func (s *session) relatedRequests(req sdk.PermissionRequest, u *toolUse) (r related, err error) {
	switch {
	case callIDOf(req) == "":
		return r, nil
	case u == nil:
		return r, errors.New("the call that needs it is not known, so nothing is allowed")
	}
	write, isWrite := req.(*rpc.PermissionRequestWrite)
	same := func(path string) sdk.PermissionRequest {
		if isWrite {
			return &rpc.PermissionRequestWrite{FileName: path}
		}
		return &rpc.PermissionRequestRead{Path: path}
	}
	if !isWrite || u.tool != toolPatch {
		paths, err := u.paths()
		for _, path := range paths {
			r.judged = append(r.judged, same(path))
		}
		return r, err
	}
	changes, err := u.changes()
	if err != nil {
		return r, err
	}
	isNamed := false
	for _, c := range changes {
		r.judged = append(r.judged, same(c.path))
		if c.target != "" {
			r.judged = append(r.judged, same(c.target))
		}
		if s.file(cmp.Or(c.target, c.path)) == s.file(write.FileName) {
			isNamed = true
			if c.target != "" {
				r.asked = append(r.asked, same(c.path))
			}
		}
	}
	if !isNamed {
		return r, fmt.Errorf("the patch does not name %s, so nothing is allowed", write.FileName)
	}
	return r, nil
}

// callIDOf returns the runtime's id of the call that needs to read or write a file; "" for other
// requests.
func callIDOf(req sdk.PermissionRequest) string {
	switch req := req.(type) {
	case *rpc.PermissionRequestRead:
		return deref(req.ToolCallID)
	case *rpc.PermissionRequestWrite:
		return deref(req.ToolCallID)
	}
	return ""
}
