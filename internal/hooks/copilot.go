package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// Copilot turns hooks that a trusted project's files give the Copilot runtime into hooks of the
// gateway. Each is asked only while its file is as it was trusted; after a change, a hook before a
// tool call denies. If the list could not be read, err says why, and the result is one hook that
// denies each call. faults tell people which hooks are not asked.
func Copilot(list []configs.CopilotHook, err error) (hooks []gateway.Hook, faults []string) {
	if err != nil {
		h := configs.CopilotHook{Event: "preToolUse", File: "the project's hooks",
			Fault: err.Error()}
		h.On, h.Timeout = configs.HookPreToolUse, time.Second
		list = []configs.CopilotHook{h}
	}
	for _, h := range list {
		if h.Fault != "" {
			faults = append(faults, h.File+": "+h.Fault)
		}
		if h.Fault != "" && h.On != configs.HookPreToolUse {
			continue
		}
		hooks = append(hooks, gateway.Hook{
			Name: fmt.Sprintf("%s (%s)", path.Base(h.File), h.Event), On: gateway.HookKind(h.On),
			Timeout: h.Timeout,
			Ask:     askCopilot(h),
		})
	}
	return hooks, faults
}

func askCopilot(h configs.CopilotHook) ask {
	env := map[string]string{"COPILOT_PROJECT_DIR": h.Project}
	maps.Copy(env, h.Env)
	return func(ctx context.Context, event []byte) ([]byte, error) {
		if h.Fault != "" {
			return nil, fmt.Errorf("%s: %s", h.File, h.Fault)
		}
		if err := configs.Unchanged(h.Project, h.File); err != nil {
			return nil, err
		}
		in, isMeant, err := copilotInput(h.Event, event)
		if err != nil || !isMeant {
			return nil, err
		}
		out, err := run(h.Command, h.Dir, env)(ctx, in)
		if err != nil {
			return nil, err
		}
		return copilotAnswer(gateway.HookKind(h.On), out)
	}
}

// copilotInput writes an event as the runtime does for its hooks. isMeant is false if the runtime
// would not ask.
func copilotInput(name string, event []byte) (in []byte, isMeant bool, err error) {
	var e gateway.HookEvent
	if err := json.Unmarshal(event, &e); err != nil {
		return nil, false, fmt.Errorf("reading the event: %w", err)
	}
	doc := map[string]any{"sessionId": e.Session, "timestamp": e.TS.UnixMilli(), "cwd": e.CWD}
	if e.Tool != "" {
		doc["toolName"], doc["toolArgs"] = e.Tool, e.Args
	}
	isMeant = true
	switch name {
	case "sessionStart":
		doc["source"] = "new"
	case "userPromptSubmitted":
		doc["prompt"] = e.Prompt
	case "postToolUse":
		isMeant = e.Error == ""
		doc["toolResult"] = map[string]string{"resultType": "success", "textResultForLlm": e.Result}
	case "postToolUseFailure":
		isMeant = e.Error != ""
		doc["error"] = e.Error
	case "agentStop":
		doc["stopReason"], doc["stop_hook_active"] = e.Reason, e.Again
	case "errorOccurred":
		doc["error"] = map[string]string{"message": e.Error}
	case "sessionEnd":
		doc["reason"] = e.Reason
	}
	in, err = json.Marshal(doc)
	return in, isMeant, err
}

// copilotAnswer reads the answer of a hook of the runtime. A hook can't allow a call that the
// permissions deny, and can't change a call. An answer that wants to is an error, which denies the
// call.
func copilotAnswer(on gateway.HookKind, out []byte) ([]byte, error) {
	var a struct {
		Permission string `json:"permissionDecision"`
		Why        string `json:"permissionDecisionReason"`
		Decision   string `json:"decision"`
		Reason     string `json:"reason"`
		Context    string `json:"additionalContext"`
	}
	if len(out) == 0 {
		return nil, nil
	}
	if err := jsonv2.Unmarshal(out, &a, jsonv2.RejectUnknownMembers(true)); err != nil {
		if errors.Is(err, jsonv2.ErrUnknownName) {
			se, _ := errors.AsType[*jsonv2.SemanticError](err)
			return nil, fmt.Errorf("answer: the gateway does not do %q", se.JSONPointer.LastToken())
		}
		return nil, errors.New("it did not answer with JSON: " + protocol.Explain("answer", err))
	}
	answer := gateway.HookAnswer{Context: a.Context}
	switch {
	case on == gateway.HookAgentStop && a.Decision == "block":
		answer.Decision, answer.Reason = protocol.DecisionDeny, a.Reason
	case on == gateway.HookPreToolUse && a.Permission == protocol.DecisionDeny:
		answer.Decision, answer.Reason = protocol.DecisionDeny, a.Why
	case on == gateway.HookPreToolUse && a.Permission == "ask":
		return nil,
			errors.New(
				"answer.permissionDecision: the gateway asks nobody for a hook: set the " +
					"permission to ask")
	case a.Permission != "" && a.Permission != protocol.DecisionAllow:
		return nil, fmt.Errorf("answer.permissionDecision: %q is not known", a.Permission)
	}
	return json.Marshal(answer)
}
