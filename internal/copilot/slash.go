package copilot

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/protocol"
)

// runtimeCommands are the runtime's own commands that a session offers. All others are left out,
// also those that a later runtime brings: they change settings that the gateway decides or keeps
// (permissions, the sandbox, directories, servers, the model, the mode, the name), start prompts
// behind its back, or show the session to others.
var runtimeCommands = []string{
	"blame", "chronicle", "compact", "context", "env", "init", "list-dirs", "research", "review",
	"security-review", "skills", "usage",
}

// Commands is [gateway.HostInfo].Commands: commands of the runtime, of extensions, and skills.
func (s *session) Commands(ctx context.Context) ([]adminapi.Command, error) {
	c, err := s.waitConn(ctx)
	if err != nil {
		return nil, err
	}
	found, err := ask(ctx, c.process, askTimeout, func(ctx context.Context) (*rpc.CommandList,
		error) {
		return c.sdk.RPC.Commands.List(ctx, &rpc.SessionCommandsListRequest{
			IncludeBuiltins: new(true), IncludeClientCommands: new(true), IncludeSkills: new(true),
		})
	})
	if err != nil {
		return nil, err
	}
	return offeredCommands(found.Commands), nil
}

// commandName is a name that the runtime reads as it is: it strips slashes, and may split at
// spaces.
var commandName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9:._-]*$`)

// offeredCommands leaves out the runtime's commands that are not among ours, and skills and
// commands of extensions that have a name which the runtime may take for one of its own.
func offeredCommands(all []rpc.SlashCommandInfo) (list []adminapi.Command) {
	own := map[string]bool{}
	for _, f := range all {
		if f.Kind == rpc.SlashCommandKindBuiltin {
			for _, name := range append(f.Aliases, f.Name) {
				own[strings.ToLower(name)] = true
			}
		}
	}
	for _, f := range all {
		isOffered := slices.Contains(runtimeCommands, f.Name)
		if f.Kind != rpc.SlashCommandKindBuiltin {
			isOffered = !slices.ContainsFunc(append(f.Aliases, f.Name), func(name string) bool {
				return own[strings.ToLower(name)] || !commandName.MatchString(name)
			})
		}
		if isOffered {
			list = append(list, command(f))
		}
	}
	return list
}

func command(f rpc.SlashCommandInfo) adminapi.Command {
	made := adminapi.Command{Name: f.Name, Aliases: f.Aliases, Description: f.Description}
	if f.Input == nil {
		return made
	}
	made.Hint, made.Required = f.Input.Hint, deref(f.Input.Required)
	for _, choice := range f.Input.Choices {
		made.Choices = append(made.Choices, adminapi.CommandChoice{Name: choice.Name,
			Description: choice.Description})
	}
	return made
}

// commandTimeout bounds a command, which may ask the model.
const commandTimeout = 5 * time.Minute

// invokeFailed stands before the reason why the runtime does not run a command.
const invokeFailed = "Request session.commands.invoke failed with message: "

// RunCommand is [gateway.HostInfo].RunCommand.
func (s *session) RunCommand(
	ctx context.Context, name, input string,
) (gateway.CommandResult, error) {
	var none gateway.CommandResult
	list, err := s.Commands(ctx)
	if err != nil {
		return none, err
	}
	isOffered := slices.ContainsFunc(list, func(c adminapi.Command) bool {
		return c.Name == name || slices.Contains(c.Aliases, name)
	})
	if !isOffered {
		return none, &protocol.Error{Code: protocol.CodeNotFound,
			Message: "the session has no command of this name"}
	}
	c, err := s.waitConn(ctx)
	if err != nil {
		return none, err
	}
	request := &rpc.CommandsInvokeRequest{Name: name}
	if input != "" {
		request.Input = &input
	}
	r, err := ask(ctx, c.process, commandTimeout,
		func(ctx context.Context) (rpc.SlashCommandInvocationResult, error) {
			return c.sdk.RPC.Commands.Invoke(ctx, request)
		})
	if err != nil {
		if _, why, ok := strings.Cut(err.Error(), invokeFailed); ok {
			return none, invalidState("%s", why)
		}
		return none, err
	}
	return commandResult(r)
}

// commandResult converts the runtime's result of a command: the part that is left to the client.
func commandResult(r rpc.SlashCommandInvocationResult) (gateway.CommandResult, error) {
	switch r := r.(type) {
	case *rpc.SlashCommandTextResult:
		return gateway.CommandResult{Text: r.Text}, nil
	case *rpc.SlashCommandCompletedResult:
		return gateway.CommandResult{Text: deref(r.Message)}, nil
	case *rpc.SlashCommandAgentPromptResult:
		return gateway.CommandResult{Text: deref(r.Notice), Prompt: r.Prompt,
			Shown: r.DisplayPrompt}, nil
	case *rpc.SlashCommandSelectSubcommandResult:
		names := make([]string, len(r.Options))
		for i, o := range r.Options {
			names[i] = o.Name
		}
		return gateway.CommandResult{}, &protocol.Error{
			Code:    protocol.CodeInvalidArguments,
			Message: "write one of these behind it: " + strings.Join(names, ", "),
		}
	}
	return gateway.CommandResult{}, invalidState("it needs a terminal: its result is %q", r.Kind())
}
