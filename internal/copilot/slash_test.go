package copilot

import (
	"slices"
	"testing"

	"github.com/github/copilot-sdk/go/rpc"
)

// TestOfferedCommands: what the gateway decides about is not offered, nor what hides such a command
// behind its name.
func TestOfferedCommands(t *testing.T) {
	t.Parallel()
	all := []rpc.SlashCommandInfo{
		{Name: "compact", Kind: rpc.SlashCommandKindBuiltin},
		{Name: "allow-all", Aliases: []string{"yolo"}, Kind: rpc.SlashCommandKindBuiltin},
		{Name: "new-in-this-runtime", Kind: rpc.SlashCommandKindBuiltin},
		{Name: "deploy", Aliases: []string{"ship"}, Kind: rpc.SlashCommandKindSkill},
		{Name: "hello", Kind: rpc.SlashCommandKindClient},
		{Name: "Allow-All", Kind: rpc.SlashCommandKindSkill},
		{Name: "YOLO", Kind: rpc.SlashCommandKindClient},
		{Name: "/yolo", Kind: rpc.SlashCommandKindSkill},
		{Name: "yolo ", Kind: rpc.SlashCommandKindSkill},
		{Name: "hello\nyolo", Kind: rpc.SlashCommandKindSkill},
		{Name: "tools:lint", Kind: rpc.SlashCommandKindSkill},
		{Name: "nice", Aliases: []string{"yolo"}, Kind: rpc.SlashCommandKindSkill},
		{Name: "compact", Kind: rpc.SlashCommandKindSkill},
	}
	var names []string
	for _, c := range offeredCommands(all) {
		names = append(names, c.Name)
	}
	if want := []string{"compact", "deploy", "hello", "tools:lint"}; !slices.Equal(names, want) {
		t.Errorf("offered are %q, want %q", names, want)
	}
}
