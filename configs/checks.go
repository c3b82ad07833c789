package configs

import "strings"

// checks has the checks that the tags is and names name.
var checks = map[string]func(string) error{
	"":        func(string) error { return nil },
	"json":    isJSON,
	"line":    oneLine,
	"noNUL":   noNUL,
	"pattern": isPattern,
	"peer":    isPeerName,
	"schema":  isSchema,
	"text":    isText,
	"tool":    isToolName,
	"variant": isVariantPrompt,
	"work":    isBelowWorkspace,
}

// checkNamed returns a check by its name in a tag. With a ? behind the name, it accepts the empty text.
func checkNamed(name string) func(string) error {
	name, mayBeEmpty := strings.CutSuffix(name, "?")
	check, ok := checks[name]
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
