package mcpbridge

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var anyObject = json.RawMessage(`{"type":"object"}`)

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format,
		args...)}}}
}

// toolServer is a server with a tool for each thing that a call can do.
func toolServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	s.AddTool(&mcp.Tool{
		Name: "echo", Title: "Echo", Description: "Says it again",
		InputSchema: json.RawMessage(
			`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("%s", req.Params.Arguments), nil
	})
	s.AddTool(&mcp.Tool{Name: "sum", Description: "Adds", InputSchema: anyObject,
		OutputSchema: json.RawMessage(`{"type":"object","properties":{"sum":{"type":"integer"}}}`),
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := text(`{"sum":3}`)
		r.StructuredContent = map[string]any{"sum": 3}
		return r, nil
	})
	s.AddTool(&mcp.Tool{Name: "list", Description: "Lists", InputSchema: anyObject,
		OutputSchema: json.RawMessage(`{"type":"array"}`),
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := text(`[3]`)
		r.StructuredContent = []any{3}
		return r, nil
	})
	s.AddTool(&mcp.Tool{Name: "fail", InputSchema: anyObject},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			r := text("it is\x1b[31m broken")
			r.IsError = true
			return r, nil
		})
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	s.AddTool(&mcp.Tool{Name: "release", InputSchema: anyObject},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			release()
			return text(""), nil
		})
	s.AddTool(&mcp.Tool{Name: "steps", InputSchema: anyObject},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: req.Params.GetProgressToken(), Progress: 1, Total: 2,
				Message: "half way",
			})
			<-released
			return text("done %v", err), nil
		})
	s.AddTool(&mcp.Tool{Name: "ask", InputSchema: anyObject}, askName)
	s.AddResource(&mcp.Resource{URI: "mem://note", Name: "note", MIMEType: "text/plain"},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "mem://note",
				Text: "a note"}}}, nil
		})
	s.AddPrompt(&mcp.Prompt{Name: "greet",
		Arguments: []*mcp.PromptArgument{{Name: "who", Required: true}}},
		func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{
				Role:    "user",
				Content: &mcp.TextContent{Text: "Greet " + req.Params.Arguments["who"]},
			}}}, nil
		})
	return s
}

// askName asks the person for a name, in the way of the connection's era.
func askName(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if r, ok := req.Params.InputResponses["q"].(*mcp.ElicitResult); ok {
		return text("%s %v", r.Action, r.Content["name"]), nil
	}
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{
		Mode: "form", Message: "Who are you?",
		RequestedSchema: json.RawMessage(
			`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`),
	}}}, nil
}

// child is a server on stdin and stdout.
func child(mode string) {
	ctx := context.Background()
	s := toolServer()
	switch mode {
	case "noisy":
		fmt.Println("Server started on stdio")
		fmt.Fprintln(os.Stderr, "this is a log")
	case "crash":
		fmt.Fprintln(os.Stderr, "I can't")
		os.Exit(3)
	case "mute":
		_, _ = bufio.NewReader(os.Stdin).ReadString('\x00')
		return
	case "old": // dies of the question that newer servers answer
		in := bufio.NewReader(os.Stdin)
		line, _ := in.ReadString('\n')
		if strings.Contains(line, "server/discover") {
			os.Exit(4)
		}
		_ = s.Run(ctx, &mcp.IOTransport{Reader: replay{strings.NewReader(line), in},
			Writer: os.Stdout})
		return
	case "junk":
		fmt.Println("{this is no JSON")
	case "kill":
		s.AddTool(&mcp.Tool{Name: "pid", InputSchema: anyObject},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: req.Params.GetProgressToken(), Progress: 1,
					Message: fmt.Sprint("pid ", os.Getpid(), "."),
				})
				<-ctx.Done()
				return text("cancelled"), nil
			})
	case "touch":
		s.AddTool(&mcp.Tool{Name: "touch", InputSchema: anyObject},
			func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return text(
					"%v",
					s.ResourceUpdated(ctx,
						&mcp.ResourceUpdatedNotificationParams{URI: "mem://note"}),
				), nil
			})
	case "roots":
		s.AddTool(&mcp.Tool{Name: "roots", InputSchema: anyObject},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: rootsOf(
					ctx, req)}}}, nil
			})
	}
	_ = s.Run(ctx, &mcp.StdioTransport{})
}

// rootsOf asks the client for its roots, as the older revisions do.
func rootsOf(ctx context.Context, req *mcp.CallToolRequest) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// Servers of the older revisions do.
	r, err := req.Session.ListRoots(ctx, nil) //nolint:staticcheck
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, root := range r.Roots {
		all = append(all, root.URI)
	}
	return strings.Join(all, " ")
}

// replay reads bytes that were read already, and then the rest.
type replay struct {
	first *strings.Reader
	rest  *bufio.Reader
}

func (r replay) Read(p []byte) (int, error) {
	if r.first.Len() > 0 {
		return r.first.Read(p)
	}
	return r.rest.Read(p)
}

func (r replay) Close() error { return nil }
