package configs

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
	"sync"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/protocol"
)

// checks has the checks that the tags is and names name.
var checks = sync.OnceValue(func() map[string]func(string) error {
	return map[string]func(string) error{
		"": func(string) error { return nil },

		// Any file.
		"text": isText, "line": oneLine, "noNUL": noNUL, "json": isJSON, "pattern": isPattern,
		"env":    isEnv,
		"keyEnv": CheckKeyEnv, "envPrefix": isEnvOrPrefix, "dir": isPath, "model": isModel,
		"glob": isGlobOf(`%q is not a glob such as build-*`),

		// Addresses.
		"address": isAddress, "host": isHost, "baseURL": CheckProviderURL, "natsURL": isNATS,
		"http": isHTTP, "mcpURL": isMCPURL,
		"hookURL": isWebURL(`is not an http or https URL, such as "http://127.0.0.1:8080/hook"`,
			"must not hold a user name or password"),
		"proxyURL": isWebURL(`is not a proxy's URL, such as "http://proxy.example:3128"`,
			"must not hold a user name or password: "+
				"put user:password into a variable and its name into auth_env"),
		"enterpriseURL": isEnterpriseURL,
		"header":        isHeader, "headerValue": headerValue,

		// Rules and patterns.
		"command": isCommandPattern, "deniedCommand": isDeniedCommand,
		"terminalRule": isTerminalRule, "path": isMatchingPath, "outside": isOutside,
		"urlPattern": isMatchingURL, "toolPattern": isToolPattern, "toolGlob": isToolGlob,
		"hookMatch": isHookMatch, "streamGlob": isStreamGlob, "fileGlob": isFileGlob,
		"sessionsCWD": isSessionsCWD,
		"loggerGlob":  isGlobOf(`%q is not a glob of loggers' names, such as "db.*"`),
		"resource":    isResource,
		"toolPrefix": matches(toolPrefix, "%q is not the beginning of a tool's name: "+
			"at most 32 letters, digits, dashes and underscores"),

		// Names.
		"agent":        matches(providerName, "is not an agent's name: "+tableNameRule),
		"profile":      matches(providerName, "is not a profile's name: "+tableNameRule),
		"role":         matches(providerName, "is not a role's name: "+tableNameRule),
		"server":       isServerName,
		"providerName": matches(providerName, "%q is not a provider's name: "+nameRule),
		"providerEnv":  isProviderEnv,
		"httpTool": matches(httpToolName,
			"is not a tool's name: 1 to 64 letters, digits, dashes and underscores"),
		"httpArg": matches(httpArgName, "is not an argument's name: "+
			"1 to 64 letters, digits and underscores, beginning with none of the digits"),
		"clusterName": isClusterName,
		"admitted":    matches(clusterName, "%q is not a gateway's name"),
		"eventStream": matches(providerName, "%q is not a stream's name: "+nameRule),
		"sourceStream": matches(streamName,
			"%q is not a stream's name: small letters, digits, dots, dashes and underscores"),
		"ending":   matches(fileEnding, `is not the ending of files, such as ".rs"`),
		"hookKind": oneOf(HookKinds...), "effort": oneOf(append([]string{""}, Efforts...)...),
		"logLevel": oneOf(MCPLogLevels...),

		// Keys of one kind of file.
		"cwd": isWorkingDir, "body": isBody, "result": isResult, "prompt": isPrompt,
		"compare": isCompare, "ascii": visibleASCII, "oauthSecret": isOAuthSecret,
		"scope": isScope, "peer": accepts(protocol.ValidName, nameRule),
		"tool": accepts(protocol.ValidToolName,
			"must be 1 to 64 letters, digits, dashes and underscores"),
		"variant": accepts(func(s string) bool { return strings.Contains(s, EvalPromptPlace) },
			"must have {prompt}, in whose place the case's prompt comes"),
		"schema": isSchema, "work": isBelowWorkspace,
	}
})

var fileEnding = lazyregexp.New(`^\.(?s:.)`)

// tableNameRule describes the names of tables that the user chooses.
const tableNameRule = "1 to 64 letters, digits, dots, dashes and underscores"

var (
	isServerName = matches(providerName, "is not a server's name: "+tableNameRule)
	isEnv        = matches(envName, "is not the name of an environment variable")
	isHTTP       = isWebURL(`is not an http or https URL, such as "https://tools.example/mcp"`, "")
)

// checkNamed returns a check by its name in a tag. With a ? behind the name, it accepts the empty
// text.
func checkNamed(name string) func(string) error {
	name, mayBeEmpty := strings.CutSuffix(name, "?")
	check, ok := checks()[name]
	if !ok {
		panic("no check is called " + name)
	}
	if !mayBeEmpty {
		return check
	}
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

// accepts returns a check with this fault. In the fault, %q stands for the text.
func accepts(isGood func(string) bool, fault string) func(string) error {
	return func(s string) error {
		switch {
		case isGood(s):
			return nil
		case strings.Contains(fault, "%q"):
			return fmt.Errorf(fault, s)
		}
		return errors.New(fault)
	}
}

// matches is accepts for the texts that an expression matches.
func matches(form *lazyregexp.Regexp, fault string) func(string) error {
	return accepts(func(s string) bool { return form.MatchString(s) }, fault)
}

func isGlobOf(fault string) func(string) error {
	return accepts(func(s string) bool {
		_, err := path.Match(s, "")
		return err == nil && s != ""
	}, fault)
}

// isWebURL returns a check of http and https URLs: the faults of other texts and, unless it is
// empty, of URLs with a user name.
func isWebURL(notURL, hasUser string) func(string) error {
	return func(s string) error {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			return errors.New(notURL)
		case u.User != nil && hasUser != "":
			return errors.New(hasUser)
		}
		return nil
	}
}

func isEnterpriseURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return errors.New(
			`is not the https URL of a GitHub Enterprise server, such as "https://github.example"`)
	}
	return nil
}

// isMCPURL accepts the URL of an MCP server, or of an authorization server.
func isMCPURL(s string) error {
	if err := isHTTP(s); err != nil {
		return err
	}
	switch u, err := url.Parse(s); {
	case err != nil:
		return err
	case u.User != nil:
		return errors.New(
			"must not hold a user name or password: write headers, with ${NAME} for a variable")
	case u.Fragment != "":
		return errors.New("must have nothing behind a #")
	}
	return nil
}
