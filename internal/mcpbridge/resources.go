package mcpbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/visible"
	"tapgw/providers"
)

// This file offers a server's resources and prompts as tools, since sessions know only tools.

const maxShown = 200 // entries of a list that a call returns at once

// own names a tool of the bridge: two servers would clash in list_resources.
func (u *upstream) ownName(name string) string { return u.b.o.Provider.Name + "_" + name }

var (
	noArguments = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
	uriArgument = json.RawMessage(`{"type":"object","properties":{"uri":{"type":"string",` +
		`"description":"the resource's URI"}},"required":["uri"],"additionalProperties":false}`)
	promptArguments = json.RawMessage(`{"type":"object","properties":{"name":{"type":"string",` +
		`"description":"the prompt's name"},"arguments":{"type":"object","description":"the prompt's arguments, by name",` +
		`"additionalProperties":{"type":"string"}}},"required":["name"],"additionalProperties":false}`)
)

// reader is a tool that only reads from a server.
func reader(description, server string) providers.Tool {
	return providers.Tool{Description: fmt.Sprintf(description, server),
		Annotations: &providers.Annotations{ReadOnlyHint: new(true)}}
}

func (u *upstream) offerResources(o *offerer) {
	server := u.b.o.Provider.Name
	o.add(u.ownName("list_resources"),
		reader("Lists the resources that %s has, with their URIs, and the patterns of "+
			"URIs that it can make one of.", server), noArguments, u.listResources)
	o.add(u.ownName("read_resource"), reader("Reads a resource of %s by its URI.", server),
		uriArgument,
		func(ctx context.Context, args json.RawMessage) (any, error) {
			var in struct {
				URI string `json:"uri"`
			}
			if err := json.Unmarshal(args, &in); err != nil {
				return nil, fmt.Errorf("reading the arguments: %w", err)
			}
			_, done := u.calls.begin(ctx)
			defer done()
			contents, err := u.readResource(ctx, in.URI)
			if err != nil {
				return nil, u.callError(ctx, err)
			}
			return convertResource(contents, keeper(ctx))
		})
}

// readResource reads a resource.
func (u *upstream) readResource(ctx context.Context, uri string) ([]*mcp.ResourceContents, error) {
	r, err := u.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		return nil, err
	}
	contents := r.Contents
	r.Contents = nil // the SDK keeps the answer for ever
	return contents, nil
}

// readAnew is the SDK's middleware for requests: it bypasses the SDK's cache of resources.
func readAnew(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		if r, ok := result.(*mcp.ReadResourceResult); ok && r != nil {
			r.TTLMs = 0
		}
		return result, err
	}
}

// entry is one line of a list.
func entry(name string, about ...string) string {
	return visible.Line(shorten(strings.Join(append([]string{name}, notEmpty(about...)...), " - "),
		maxReason))
}

func join(lines []string, isCut bool, none string) string {
	if len(lines) == 0 {
		return none
	}
	if len(lines) > maxShown {
		lines = append(lines[:maxShown:maxShown], fmt.Sprintf("[%d more]", len(lines)-maxShown))
	}
	if isCut {
		lines = append(lines, "[the server's list goes on]")
	}
	return strings.Join(lines, "\n")
}

func (u *upstream) listResources(ctx context.Context, _ json.RawMessage) (any, error) {
	resources, isCut, err := collect(u.session.Resources(ctx, nil))
	if err != nil {
		return nil, u.callError(ctx, err)
	}
	var lines []string
	for _, r := range resources {
		lines = append(lines, entry(r.URI, r.Name, r.Title, r.Description, r.MIMEType))
	}
	// Not every server that has resources knows of templates.
	if templates, _, err := collect(u.session.ResourceTemplates(ctx, nil)); err == nil {
		for _, t := range templates {
			lines = append(lines, "pattern: "+entry(t.URITemplate, t.Name, t.Title, t.Description,
				t.MIMEType))
		}
	} else if _, isAnswer := errors.AsType[*jsonrpc.Error](err); !isAnswer {
		return nil, u.callError(ctx, err)
	}
	return join(lines, isCut, "There are no resources."), nil
}

func (u *upstream) offerPrompts(o *offerer) {
	server := u.b.o.Provider.Name
	o.add(u.ownName("list_prompts"), reader(
		"Lists the prompts that %s has: texts for a task, written beforehand.", server),
		noArguments, u.listPrompts)
	o.add(u.ownName("get_prompt"),
		reader("Gets a prompt of %s by its name, with arguments filled in.", server),
		promptArguments, func(ctx context.Context, args json.RawMessage) (any, error) {
			params := &mcp.GetPromptParams{}
			var in struct {
				Name      string            `json:"name"`
				Arguments map[string]string `json:"arguments"`
			}
			if err := json.Unmarshal(args, &in); err != nil {
				return nil, fmt.Errorf("reading the arguments: %w", err)
			}
			_, done := u.calls.begin(ctx)
			defer done()
			params.Name, params.Arguments = in.Name, in.Arguments
			r, err := u.session.GetPrompt(ctx, params)
			if err != nil {
				return nil, u.callError(ctx, err)
			}
			result := &mcp.CallToolResult{}
			for _, m := range r.Messages {
				result.Content = append(result.Content,
					&mcp.TextContent{Text: string(m.Role) + ":"}, m.Content)
			}
			return convert(result, keeper(ctx))
		})
}

func (u *upstream) listPrompts(ctx context.Context, _ json.RawMessage) (any, error) {
	prompts, isCut, err := collect(u.session.Prompts(ctx, nil))
	if err != nil {
		return nil, u.callError(ctx, err)
	}
	var lines []string
	for _, p := range prompts {
		var args []string
		for _, a := range p.Arguments {
			name := a.Name
			if !a.Required {
				name += "?"
			}
			args = append(args, name)
		}
		lines = append(lines, entry(p.Name+"("+strings.Join(args, ", ")+")", p.Title,
			p.Description))
	}
	return join(lines, isCut, "There are no prompts."), nil
}
