package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// tasksExtension is the extension of the revisions without a handshake by which a call may be answered with
// a task (SEP-2663). The SDK does not know it.
const tasksExtension = "io.modelcontextprotocol/tasks"

// The methods of the extension.
const (
	methodGetTask    = "tasks/get"
	methodUpdateTask = "tasks/update"
	methodCancelTask = "tasks/cancel"
	methodTask       = "notifications/tasks"
)

type taskParams struct {
	mcp.ParamsBase
	TaskID string `json:"taskId"`
}

type updateParams struct {
	mcp.ParamsBase
	TaskID string `json:"taskId"`
	// Not of the SDK's type, which refuses all for a strange value of a key that nobody asked about.
	InputResponses json.RawMessage `json:"inputResponses"`
}

// ack is the answer to a request that has no other.
type ack struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

const resultComplete = "complete"

// addTaskMethods adds the methods of the extension to the server.
func (e *endpoint) addTaskMethods() {
	err := errors.Join(
		mcp.AddReceivingCustomMethod(e.server, methodGetTask,
			func(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*taskView, error) {
				t, err := e.task(ctx, p.TaskID)
				if err != nil {
					return nil, err
				}
				t.fetched()
				view := t.view(readAbilities(p.Meta).elicits)
				view.ResultType = resultComplete
				return view, nil
			}),
		mcp.AddReceivingCustomMethod(e.server, methodUpdateTask,
			func(ctx context.Context, _ *mcp.ServerSession, p *updateParams) (*ack, error) {
				t, err := e.task(ctx, p.TaskID)
				if err != nil {
					return nil, err
				}
				return &ack{ResultType: resultComplete}, t.update(p.InputResponses)
			}),
		mcp.AddReceivingCustomMethod(e.server, methodCancelTask,
			func(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*ack, error) {
				t, err := e.task(ctx, p.TaskID)
				if err != nil {
					return nil, err
				}
				t.abort("the client cancelled it")
				return &ack{ResultType: resultComplete}, nil
			}))
	if err != nil {
		panic(err) // the SDK has a method of such a name now
	}
}

// task returns a task that the caller of ctx began at this endpoint.
func (e *endpoint) task(ctx context.Context, id string) (*task, error) {
	if t := e.h.tasks.find(e, callerOf(ctx), id); t != nil && t.held == nil {
		return t, nil
	}
	return nil, invalidParams("there is no such task here: it was never begun, its time to live is over, " +
		"or the gateway has restarted")
}

// update answers questions of the task, by their ids. Right answers count also if others are wrong.
func (t *task) update(responses json.RawMessage) error {
	var answers map[string]json.RawMessage
	if len(responses) > 0 && json.Unmarshal(responses, &answers) != nil {
		return invalidParams("inputResponses: must be an object")
	}
	var faults []error
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		if err := t.answer(id, answers[id]); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return invalidParams(errors.Join(faults...).Error())
	}
	return nil
}

func invalidParams(text string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: text}
}

// errNoTasks refuses a request of a client that does not take tasks.
func errNoTasks() error {
	return &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities,
		Message: "the request's capabilities lack the extension " + tasksExtension,
		Data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`)}
}

// abilities are what a client says in a request that it can do.
type abilities struct {
	isModern bool // its revision has no handshake
	tasks    bool
	elicits  bool // it can show a form to its user
}

// readAbilities reads what a request's _meta says of its client.
func readAbilities(meta mcp.Meta) (a abilities) {
	version, _ := meta[mcp.MetaKeyProtocolVersion].(string)
	if a.isModern = version >= firstModern; !a.isModern {
		return a
	}
	capabilities, _ := meta[mcp.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := capabilities["extensions"].(map[string]any)
	_, a.tasks = extensions[tasksExtension].(map[string]any)
	modes, ok := capabilities["elicitation"].(map[string]any)
	_, form := modes["form"]
	a.elicits = ok && (form || len(modes) == 0)
	return a
}

// withTasks makes slow calls tasks, and refuses the methods of the extension to clients that don't take tasks.
func (e *endpoint) withTasks(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		switch method {
		case methodInitialize: // tasks are not for revisions with a handshake
			result, err := next(ctx, method, r)
			if answer, ok := result.(*mcp.InitializeResult); ok && err == nil {
				answer.Capabilities.Extensions = nil
			}
			return result, err
		case methodCall:
			if r, ok := r.(*mcp.CallToolRequest); ok && readAbilities(r.Params.Meta).tasks {
				return e.callOrTask(ctx, func(ctx context.Context) (mcp.Result, error) { return next(ctx, method, r) })
			}
		case methodListen:
			if r, ok := r.(*mcp.SubscriptionsListenRequest); ok {
				return e.listen(ctx, r, func(ctx context.Context) (mcp.Result, error) { return next(ctx, method, r) })
			}
		case methodGetTask, methodUpdateTask, methodCancelTask:
			switch a := readAbilities(metaOf(r)); {
			case !a.isModern:
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
					Message: fmt.Sprintf("%q is for revisions from %s on", method, firstModern)}
			case !a.tasks:
				return nil, errNoTasks()
			}
		}
		return next(ctx, method, r)
	}
}

// metaOf is the _meta of a request of the extension; nil if it has no params.
func metaOf(r mcp.Request) mcp.Meta {
	switch p := r.GetParams().(type) {
	case *taskParams:
		if p != nil {
			return p.Meta
		}
	case *updateParams:
		if p != nil {
			return p.Meta
		}
	}
	return nil
}
