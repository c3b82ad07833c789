package builtin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tapgw/tools"
	"tapgw/tools/internal/project"
)

type getProjectSetupInfoIn struct {
	ProjectType string `json:"projectType" jsonschema:"The kind of project: any for whatever is there, or go, node, deno, python, rust, maven, gradle, dotnet, ruby, php, elixir, dart, swift, cmake, bazel, make, just, docker."`
}

var _ = add(&tools.Tool{
	Name: "get_project_setup_info",
	Description: "Say what kinds of project are in the workspace and with which commands they " +
		"are installed, built, " +
		"tested, run and checked, told from their files. Of a kind that is not there it says how " +
		"one is begun.",
	Kind: tools.Read,
}, getProjectSetupInfo)

// otherNames maps other names of a kind to the one that package project knows.
var otherNames = map[string]string{
	"golang": "go", "javascript": "node", "typescript": "node", "js": "node", "ts": "node",
	"npm": "node", "nodejs": "node", "node.js": "node", "react": "node",
	"py": "python", "cargo": "rust", "java": "maven", "kotlin": "gradle", "c#": "dotnet",
	"csharp": "dotnet", ".net": "dotnet", "c++": "cmake", "c": "cmake",
	"flutter": "dart", "rails": "ruby", "composer": "php", "makefile": "make", "compose": "docker",
	"": "any", "all": "any", "auto": "any",
}

func getProjectSetupInfo(
	ctx context.Context, env *access, in getProjectSetupInfoIn,
) (tools.Result, error) {
	wanted := strings.ToLower(strings.TrimSpace(in.ProjectType))
	if other, ok := otherNames[wanted]; ok {
		wanted = other
	}
	if wanted != "any" && !slices.Contains(project.Kinds(), wanted) {
		return tools.Result{}, fmt.Errorf(
			"no kind of project is called %.80q: any finds what is there, or name one of %s",
			in.ProjectType, strings.Join(project.Kinds(), ", "))
	}
	at, err := env.files().At(ctx, ".", false)
	if err != nil {
		return tools.Result{}, err
	}
	defer at.Close()
	fsys, err := at.FS()
	if err != nil {
		return tools.Result{}, err
	}
	all, err := project.Detect(fsys)
	if err != nil {
		return tools.Result{}, err
	}
	var parts, others []string
	for _, p := range all {
		if wanted == "any" || p.Kind == wanted {
			parts = append(parts, setupInfo(p))
		} else if !slices.Contains(others, p.Kind) {
			others = append(others, p.Kind)
		}
	}
	switch {
	case len(parts) > 0:
		return textResult(strings.Join(parts, "\n\n")), nil
	case wanted == "any":
		known := strings.Join(project.Kinds(), ", ")
		return textResult("No project was recognised by its files. Known are: " + known + "."), nil
	}
	answer := fmt.Sprintf("There is no %s project here. One is begun with: %s", wanted,
		project.Start(wanted))
	if len(others) > 0 {
		answer += "\nWhat is here: " + strings.Join(others, ", ") + "."
	}
	return textResult(answer), nil
}

// setupInfo formats a project: its kind, name and directory, its details and its commands.
func setupInfo(p project.Project) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s in %s", strings.TrimSuffix(p.Kind+" project "+p.Name, " "), p.Dir)
	if len(p.Details) > 0 {
		b.WriteString("\n" + strings.Join(p.Details, ", "))
	}
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "\n%s: %s", c.What, c.Line)
	}
	return b.String()
}
