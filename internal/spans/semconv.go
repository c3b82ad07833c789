package spans

import (
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// The names below follow the conventions for generative AI and MCP of OpenTelemetry, in
// github.com/open-telemetry/semantic-conventions-genai at 32c328e. They are in a file of their own
// because the conventions are not stable. Names with tapgw are our own.

// Attributes of the conventions.
const (
	ErrorType      = "error.type"
	operationName  = "gen_ai.operation.name"
	agentName      = "gen_ai.agent.name"
	conversationID = "gen_ai.conversation.id"
	requestModel   = "gen_ai.request.model"
	toolName       = "gen_ai.tool.name"
	toolType       = "gen_ai.tool.type"
	toolCallID     = "gen_ai.tool.call.id"
	toolArguments  = "gen_ai.tool.call.arguments"
	toolResult     = "gen_ai.tool.call.result"
	inputTokens    = "gen_ai.usage.input_tokens"
	outputTokens   = "gen_ai.usage.output_tokens"

	mcpMethod        = "mcp.method.name"
	mcpVersion       = "mcp.protocol.version"
	mcpSession       = "mcp.session.id"
	rpcStatus        = "rpc.response.status_code"
	networkTransport = "network.transport"
	networkProtocol  = "network.protocol.name"
	serverAddress    = "server.address"
	serverPort       = "server.port"
)

// Values of the conventions.
const (
	opInvokeAgent = "invoke_agent"
	opExecuteTool = "execute_tool"
	typeFunction  = "function"

	ErrorTool = "tool_error" // an MCP tool says that it failed
	overTCP   = "tcp"
	overPipes = "pipe"
	overHTTP  = "http"
)

// Classes of errors of turns that were cut short, and of runs of sources. Others are codes of the
// protocol.
const (
	ErrorCutShort = "cut_short"
	ErrorRun      = "run_failed"
)

// Attributes of our own.
const (
	attrProvider = "tapgw.provider"
	attrLabel    = "tapgw.session.label"
	attrHost     = "tapgw.host"
	attrSource   = "tapgw.source"
	attrStream   = "tapgw.stream"
	attrFate     = "tapgw.fate"
	attrGates    = "tapgw.gates"
	attrDecision = "tapgw.decision"
	attrReason   = "tapgw.reason"
)

// Session has the attributes that every span of a session gets.
type Session struct {
	ID, Label, Host string
}

func (s Session) attrs(more ...attribute.KeyValue) []attribute.KeyValue {
	return append(more, attribute.String(conversationID, s.ID),
		attribute.String(attrLabel, s.Label), attribute.String(attrHost, s.Host))
}

// Turn describes a prompt until the session is done with it. by names the author of the prompt, and
// model may be "". If the host has a span of the conventions' name below it, which has more
// attributes, the turn gets a name of our own.
func Turn(s Session, by, model string, hostHasSpans bool) Info {
	if hostHasSpans {
		return Info{Name: "turn", Kind: trace.SpanKindInternal,
			Attrs: s.attrs(attribute.String(attrSource, by))}
	}
	i := Info{Name: opInvokeAgent + " " + s.Host, Kind: trace.SpanKindInternal, Attrs: s.attrs(
		attribute.String(operationName, opInvokeAgent), attribute.String(agentName, s.Host),
		attribute.String(attrSource, by))}
	if model != "" {
		i.Attrs = append(i.Attrs, attribute.String(requestModel, model))
	}
	return i
}

// SetTokens sets the tokens that the model of a turn has read and written.
func (s *Span) SetTokens(input, output int64) {
	s.Set(attribute.Int64(inputTokens, input), attribute.Int64(outputTokens, output))
}

// ToolCall describes a call of a provider's tool. Where the host's span is above it, which has the
// name of the conventions, it is a name of our own.
func ToolCall(s Session, tool, provider string, isBelowHost bool) Info {
	i := Info{Name: "tool.call " + tool, Kind: trace.SpanKindClient, Attrs: s.attrs(
		attribute.String(toolName, tool))}
	if provider != "" {
		i.Attrs = append(i.Attrs, attribute.String(attrProvider, provider))
	}
	if !isBelowHost {
		i.Name, i.Kind = opExecuteTool+" "+tool, trace.SpanKindInternal
		i.Attrs = append(
			i.Attrs,
			attribute.String(operationName, opExecuteTool),
			attribute.String(toolType, typeFunction),
			attribute.String(agentName, s.Host),
		)
	}
	return i
}

// SetCallID sets the id by which the provider knows a call.
func (s *Span) SetCallID(id string) { s.Set(attribute.String(toolCallID, id)) }

// SetContent sets a call's arguments and its result, as JSON; "" is left out. It is only for users
// who ask for content.
func (s *Span) SetContent(args, result string) {
	if args != "" {
		s.Set(attribute.String(toolArguments, args))
	}
	if result != "" {
		s.Set(attribute.String(toolResult, result))
	}
}

// Gate describes asking gates about a call.
func Gate(s Session, tool string, gates []string) Info {
	return Info{Name: "gate " + tool, Kind: trace.SpanKindClient, Attrs: s.attrs(
		attribute.String(toolName, tool), attribute.StringSlice(attrGates, gates))}
}

// SetDecision sets the decision of gates: allow or deny, and why they denied.
func (s *Span) SetDecision(decision, reason string) {
	s.Set(attribute.String(attrDecision, decision))
	if reason != "" {
		s.Set(attribute.String(attrReason, reason))
	}
}

// Push describes an event that came into a session.
func Push(s Session, provider, stream string) Info {
	return Info{Name: "push " + provider, Kind: trace.SpanKindServer, Attrs: s.attrs(
		attribute.String(attrProvider, provider), attribute.String(attrStream, stream))}
}

// SetFate sets the fate of a push.
func (s *Span) SetFate(fate string) { s.Set(attribute.String(attrFate, fate)) }

// SourceRun describes a run of a source of events.
func SourceRun(source, stream string) Info {
	return Info{Name: "source " + source, Kind: trace.SpanKindInternal, Attrs: []attribute.KeyValue{
		attribute.String(attrSource, source), attribute.String(attrStream, stream)}}
}

// MCPCall is the method of a call of a tool.
const MCPCall = "tools/call"

// MCP describes a request of MCP: its subject and its two sides. It leaves out names of prompts and
// URIs of resources, because a model writes them as arguments of a tool.
type MCP struct {
	Method string
	Tool   string // "" for an unknown tool
	// Version is the revision of the protocol, Session the id that handshake revisions have.
	Version, Session string
	// Host and Port are the host and the port of a server at a URL, for requests to it. IsHTTP says
	// that HTTP carries the request, and IsRemote that it goes over a network; else it goes over
	// pipes.
	Host             string
	Port             int
	IsHTTP, IsRemote bool
}

// Transport returns the transport of the request: tcp or pipe.
func (m *MCP) Transport() string {
	if m.IsRemote {
		return overTCP
	}
	return overPipes
}

// MCPRequest describes a request to a server, or, with isServer, a client's request to this
// gateway. link is the trace of the HTTP request that carried it, or "".
func MCPRequest(m *MCP, isServer bool, link string) Info {
	i := Info{Name: m.Method, Kind: trace.SpanKindClient, Link: link, Attrs: []attribute.KeyValue{
		attribute.String(mcpMethod, m.Method), attribute.String(networkTransport, m.Transport())}}
	if isServer {
		i.Kind = trace.SpanKindServer
	}
	add := func(name, value string) {
		if value != "" {
			i.Attrs = append(i.Attrs, attribute.String(name, value))
		}
	}
	if m.Method == MCPCall {
		add(operationName, opExecuteTool)
	}
	if m.Tool != "" {
		i.Name += " " + m.Tool
		add(toolName, m.Tool)
	}
	add(mcpVersion, m.Version)
	add(mcpSession, m.Session)
	add(serverAddress, m.Host)
	if m.Port != 0 {
		i.Attrs = append(i.Attrs, attribute.Int(serverPort, m.Port))
	}
	if m.IsHTTP {
		add(networkProtocol, overHTTP)
	}
	return i
}

// FailRPC says that a request was answered with an error of JSON-RPC, and returns its class.
func (s *Span) FailRPC(code int64) (class string) {
	class = strconv.FormatInt(code, 10)
	s.Set(attribute.String(rpcStatus, class))
	s.Fail(class)
	return class
}
