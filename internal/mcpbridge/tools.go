package mcpbridge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
	"tapgw/providers"
)

const (
	maxName   = 64        // characters of a tool's name
	maxListed = 20_000    // entries of a list; a server that lists more is not read to its end
	maxTool   = 128 << 10 // bytes of a tool, in JSON
	maxTools  = 1500 << 10
	// maxResultSchema bounds an output schema, in bytes: a tool with a larger one is worth more
	// than that.
	maxResultSchema = 32 << 10
	maxFaults       = 10 // tools that are named as left out
)

// offering has the tools that the bridge offers of a server, and a line for each that it leaves
// out.
type offering struct {
	tools  []providers.Tool
	origin []string // the server's names of the tools, as long as tools
	faults []string
}

// equal reports whether two offerings are the same for sessions and in their faults.
func (o offering) equal(other offering) bool {
	return slices.Equal(o.faults, other.faults) && slices.Equal(o.origin, other.origin) &&
		slices.EqualFunc(o.tools, other.tools, func(a, b providers.Tool) bool {
			return a.Name == b.Name && a.Title == b.Title && a.Description == b.Description &&
				string(a.Parameters) == string(b.Parameters) &&
				string(a.OutputSchema) == string(b.OutputSchema) &&
				reflect.DeepEqual(a.Annotations, b.Annotations)
		})
}

// list asks the server for its tools and resources.
func (u *upstream) list(ctx context.Context) (offering, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	o := newOfferer(&u.b.o.Provider)
	has := u.session.InitializeResult().Capabilities
	if has == nil {
		has = &mcp.ServerCapabilities{}
	}
	// Resources come first, so that a long list of tools does not push them out.
	if has.Resources != nil && u.b.o.Provider.MCP.Resources {
		u.offerResources(o)
	}
	if has.Prompts != nil && u.b.o.Provider.MCP.Prompts {
		u.offerPrompts(o)
	}
	if has.Tools != nil {
		tools, isCut, err := collect(u.session.Tools(ctx, nil))
		if err != nil {
			return offering{}, err
		}
		for _, t := range tools {
			o.add(t.Name, toolOf(t), t.InputSchema, u.toolHandler(t.Name))
		}
		if isCut {
			o.fault("it lists more than %d tools; the others are left out", maxListed)
		}
	}
	return o.finish(), nil
}

// collect reads a list up to maxListed entries.
func collect[T any](list iter.Seq2[*T, error]) (all []*T, isCut bool, err error) {
	for entry, err := range list {
		if err != nil {
			return nil, false, err
		}
		if len(all) == maxListed {
			return all, true, nil
		}
		if entry != nil {
			all = append(all, entry)
		}
	}
	return all, false, nil
}

// offerer makes tools of a server into tools of a provider.
type offerer struct {
	file    *configs.Provider
	allowed func(name string) bool
	result  offering
	taken   map[string]string // the server's name of each tool, by the name in sessions
	size    int
	leftOut []string // reasons
	tooMany []string // names
}

func newOfferer(file *configs.Provider) *offerer {
	matches := func(globs []string, name string) bool {
		return slices.ContainsFunc(globs, func(glob string) bool {
			ok, err := path.Match(glob, name)
			return ok && err == nil
		})
	}
	rules := file.Rules
	return &offerer{file: file, taken: map[string]string{}, allowed: func(name string) bool {
		return (len(rules.Allow) == 0 || matches(rules.Allow, name)) && !matches(rules.Deny, name)
	}}
}

func (o *offerer) fault(format string, args ...any) {
	o.result.faults = append(o.result.faults, fmt.Sprintf(format, args...))
}

// add offers a tool, or notes why it can't be one. A tool that the file's allow and deny exclude is
// no fault, and does not count among the tools that a provider may have.
func (o *offerer) add(origin string, tool providers.Tool, schema any, handler handler) {
	leaveOut := func(format string, args ...any) {
		o.leftOut = append(o.leftOut,
			fmt.Sprintf("tool %s left out: %s", visible.Line(shorten(origin, 100)),
				fmt.Sprintf(format, args...)))
	}
	name := validName(origin, maxName-len(o.file.Rules.Prefix))
	if other, isTaken := o.taken[name]; isTaken {
		if other == origin {
			leaveOut("the server lists it twice")
			return
		}
		clash := name
		name = withHash(name, origin, maxName-len(o.file.Rules.Prefix))
		if _, isTaken := o.taken[name]; isTaken {
			leaveOut("its name clashes with that of %s", visible.Line(shorten(other, 100)))
			return
		}
		o.fault("tool %s is %s here: %s is the name of the tool %s",
			visible.Line(shorten(origin, 100)), name, clash, visible.Line(shorten(other, 100)))
	}
	if !o.allowed(name) {
		return
	}
	parameters, err := json.Marshal(schema)
	if err == nil {
		_, err = protocol.CompileSchema(parameters)
	}
	size := len(parameters) + len(tool.OutputSchema) + len(tool.Description) + len(tool.Title) +
		len(name)
	switch {
	case size > maxTool:
		leaveOut("its description and schemas have %d bytes, more than %d", size, maxTool)
	case err != nil:
		leaveOut("its schema: %v", err)
	case len(o.result.tools) == protocol.MaxTools, o.size+size > maxTools:
		o.tooMany = append(o.tooMany, name)
	default:
		o.taken[name] = origin
		o.size += size
		o.result.origin = append(o.result.origin, origin)
		tool.Name, tool.Parameters, tool.Timeout, tool.Handler = name, parameters,
			o.file.Rules.Timeout, handler
		tool.Description = cmp.Or(tool.Description,
			fmt.Sprintf("The tool %s of %s.", name, o.file.Name))
		o.result.tools = append(o.result.tools, tool)
	}
}

func (o *offerer) finish() offering {
	if n := len(o.leftOut); n > maxFaults {
		o.leftOut = append(o.leftOut[:maxFaults], fmt.Sprintf("%d more tools are left out",
			n-maxFaults))
	}
	o.result.faults = append(o.result.faults, o.leftOut...)
	if n := len(o.tooMany); n > 0 {
		o.fault(
			"%d tools left out, %s and others: a provider has at most %d tools, of %d "+
				"KiB together: "+
				"choose with allow and deny", n, o.tooMany[0], protocol.MaxTools, maxTools>>10)
	}
	return o.result
}

// validName makes a name of a server's a tool's name: other characters than those that it may have
// become "_".
func validName(name string, maxLength int) string {
	valid := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r|0x20 &&
			r|0x20 <= 'z') {
			return r
		}
		return '_'
	}, name)
	if valid == "" || len(valid) > maxLength {
		return withHash(valid, name, maxLength)
	}
	return valid
}

// withHash ends a name by a hash of the server's name, so that it is always the same.
func withHash(valid, name string, maxLength int) string {
	sum := sha256.Sum256([]byte(name))
	end := "_" + hex.EncodeToString(sum[:4])
	return valid[:min(len(valid), maxLength-len(end))] + end
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// toolOf converts a server's tool without its name and its arguments. MCP clients show its texts on
// terminals, which obey control characters.
func toolOf(t *mcp.Tool) providers.Tool {
	tool := providers.Tool{Title: visible.Controls(t.Title),
		Description: visible.Controls(strings.ReplaceAll(t.Description, "\r\n", "\n"))}
	if a := t.Annotations; a != nil {
		tool.Title = cmp.Or(tool.Title, visible.Controls(a.Title))
		tool.Annotations = &providers.Annotations{ReadOnlyHint: &a.ReadOnlyHint,
			DestructiveHint: a.DestructiveHint, IdempotentHint: &a.IdempotentHint,
			OpenWorldHint: a.OpenWorldHint}
	}
	if t.OutputSchema == nil {
		return tool
	}
	schema, err := json.Marshal(t.OutputSchema)
	if err != nil || len(schema) > maxResultSchema {
		return tool
	}
	// A provider's results are objects. The model reads of others in the description.
	if _, err := protocol.CompileSchema(schema); err == nil {
		tool.OutputSchema = schema
	} else if text := gateway.DescribeResult(schema); text != "" {
		tool.Description = strings.TrimSpace(tool.Description + "\n" + text)
	}
	return tool
}

// handler runs a call of a tool.
type handler = func(ctx context.Context, args json.RawMessage) (any, error)

// toolHandler calls a tool of the server.
func (u *upstream) toolHandler(name string) handler {
	return func(ctx context.Context, args json.RawMessage) (any, error) {
		call, done := u.calls.begin(ctx)
		defer done()
		params := &mcp.CallToolParams{Name: name}
		if len(args) > 0 {
			params.Arguments = args
		}
		params.SetProgressToken(call.token)
		result, err := u.session.CallTool(ctx, params)
		if err != nil {
			return nil, u.callError(ctx, err)
		}
		return convert(result, keeper(ctx))
	}
}

// lossTime is how long a failed call waits to learn whether the server is gone.
const lossTime = 500 * time.Millisecond

// callError words the error of a call. If the server is gone, it first waits until the gateway has
// ended the call with DISCONNECTED.
func (u *upstream) callError(ctx context.Context, err error) error {
	if why, needsLogin := errors.AsType[loginError](err); needsLogin {
		return fmt.Errorf("the MCP server %w", why)
	}
	if _, isAnswer := errors.AsType[*jsonrpc.Error](err); !isAnswer {
		timer := time.NewTimer(lossTime)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-u.lost:
			<-ctx.Done()
		case <-timer.C:
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the MCP server: %s", visible.Text(shorten(err.Error(), maxReason)))
}
