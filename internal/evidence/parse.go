// Package evidence checks claims against facts: files of a session's directory, events of its
// streams, and calls that the gateway recorded. A check is looked up and never run, and no word of
// the model is evidence.
package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/match"
	"tapgw/internal/protocol"
)

// Parse reads a check: {"file": …}, {"stream": …} or {"call": …}, or one in the form of
// tap_verify_goal_output, which has a type. The error is one line that names the field; no field is
// passed over.
func Parse(data []byte) (adminapi.Check, error) {
	var c adminapi.Check
	form := ""
	err := protocol.Object(data, func(name string, value protocol.Raw) error {
		if name == "type" {
			return inField(name, text(&form)(value))
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	if form == "" {
		err = nested(&c).read(data)
	} else {
		err = typed(&c, form, data)
	}
	if err != nil {
		return c, err
	}
	return c, validate(&c)
}

// validate returns the fault of a check beyond the types of its fields.
func validate(c *adminapi.Check) error {
	var found []string
	var pattern string
	var err error
	if f := c.File; f != nil {
		found, pattern = append(found, "file"), f.Pattern
		if f.Path == "" {
			err = &fieldError{"path", errMissing}
		}
	}
	if s := c.Stream; s != nil {
		found, pattern = append(found, "stream"), s.Pattern
		err = validateStream(s)
	}
	if call := c.Call; call != nil {
		found, pattern = append(found, "call"), call.Pattern
		switch {
		case len(call.Command) > maxCommand:
			err = &fieldError{"command",
				fmt.Errorf("has %d bytes, and records have %d of a command", len(call.Command),
					maxCommand)}
		case call.Tool == "" && call.Command == "" && call.Contains == "" && call.Pattern == "":
			err = &fieldError{
				"command",
				errors.New("is missing, and so are tool, contains and pattern: any call would fit"),
			}
		}
	}
	if len(found) != 1 {
		return errors.New("a check has one of file, stream and call")
	}
	if err == nil && pattern != "" {
		_, err = match.Compile(pattern)
		err = inField("pattern", err)
	}
	return inField(found[0], err)
}

func validateStream(s *adminapi.StreamCheck) error {
	name, provider, has := strings.Cut(s.Channel, "@")
	switch {
	case s.Channel == "":
		return &fieldError{"channel", errMissing}
	case protocol.NormalName(name) == "" || has && protocol.NormalName(provider) == "":
		return &fieldError{"channel", fmt.Errorf("%q has no letter, digit, dot or underscore",
			s.Channel)}
	case s.Limit < 0:
		return &fieldError{"limit", errors.New("must not be negative")}
	case s.MinEntries < 0:
		return &fieldError{"minEntries", errors.New("must not be negative")}
	case s.Limit > 0 && s.MinEntries > s.Limit:
		return &fieldError{"minEntries", fmt.Errorf("is more than limit, %d", s.Limit)}
	}
	return nil
}

// maxCommand is how much of a command is recorded, in bytes.
const maxCommand = 1 << 10

var errMissing = errors.New("is missing")

// fieldError is the fault of a field of a check.
type fieldError struct {
	field string // its path
	err   error
}

func (e *fieldError) Error() string { return e.field + ": " + e.err.Error() }

func (e *fieldError) Unwrap() error { return e.err }

// inField says of an error in which field it is; nil stays nil.
func inField(name string, err error) error {
	if err == nil {
		return nil
	}
	if inner, ok := errors.AsType[*fieldError](err); ok {
		return &fieldError{name + "." + inner.field, inner.err}
	}
	return &fieldError{name, err}
}

// setter takes the value of a field.
type setter func(protocol.Raw) error

// setters are the fields that an object may have.
type setters map[string]setter

func (set setters) read(object []byte) error {
	return protocol.Object(object, func(name string, value protocol.Raw) error {
		take, ok := set[name]
		if !ok {
			return &fieldError{name, fmt.Errorf("is no field of this check, which takes %s",
				strings.Join(slices.Sorted(maps.Keys(set)), ", "))}
		}
		return inField(name, take(value))
	})
}

func text(to *string) setter {
	return func(v protocol.Raw) error {
		s, ok := protocol.Text(v)
		if !ok {
			return errors.New("must be a text")
		}
		*to = s
		return nil
	}
}

func number(to *int) setter {
	return func(v protocol.Raw) error {
		if v.Kind() != '0' || json.Unmarshal(v, to) != nil {
			return errors.New("must be a whole number")
		}
		return nil
	}
}

func truth(to *bool) setter {
	return func(v protocol.Raw) error {
		if v.Kind() != 't' && v.Kind() != 'f' {
			return errors.New("must be true or false")
		}
		*to = v.Kind() == 't'
		return nil
	}
}

func fileFields(f *adminapi.FileCheck) setters {
	return setters{
		"path": text(
			&f.Path,
		), "nonEmpty": truth(&f.NonEmpty), "contains": text(&f.Contains),
		"pattern": text(&f.Pattern),
	}
}

func streamFields(s *adminapi.StreamCheck) setters {
	return setters{
		"channel": text(&s.Channel), "limit": number(&s.Limit), "minEntries": number(&s.MinEntries),
		"contains": text(&s.Contains), "pattern": text(&s.Pattern),
	}
}

func callFields(call *adminapi.CallCheck) setters {
	return setters{
		"tool": text(&call.Tool), "command": text(&call.Command), "contains": text(&call.Contains),
		"pattern": text(&call.Pattern),
		"exitCode": func(v protocol.Raw) error {
			call.ExitCode = new(int)
			return number(call.ExitCode)(v)
		},
		"success": func(v protocol.Raw) error {
			call.Success = new(bool)
			return truth(call.Success)(v)
		},
	}
}

// nested are the fields of a check of the form {"file": …}. A text is short for the first field of
// the object.
func nested(c *adminapi.Check) setters {
	either := func(short *string, set setters) setter {
		return func(v protocol.Raw) error {
			switch v.Kind() {
			case '"':
				return text(short)(v)
			case '{':
				return set.read(v)
			}
			return errors.New("must be a text or an object")
		}
	}
	return setters{
		"description": text(&c.Description),
		"file": func(v protocol.Raw) error {
			c.File = &adminapi.FileCheck{}
			return either(&c.File.Path, fileFields(c.File))(v)
		},
		"stream": func(v protocol.Raw) error {
			c.Stream = &adminapi.StreamCheck{}
			return either(&c.Stream.Channel, streamFields(c.Stream))(v)
		},
		"call": func(v protocol.Raw) error {
			c.Call = &adminapi.CallCheck{}
			return either(&c.Call.Command, callFields(c.Call))(v)
		},
	}
}

// typed reads a check in the form of tap_verify_goal_output.
func typed(c *adminapi.Check, form string, data []byte) error {
	var set setters
	switch form {
	case "file":
		c.File = &adminapi.FileCheck{}
		set = fileFields(c.File)
	case "stream":
		c.Stream = &adminapi.StreamCheck{}
		set = streamFields(c.Stream)
	case "command_evidence":
		c.Call = &adminapi.CallCheck{}
		set = callFields(c.Call)
		set["label"] = text(&c.Call.Contains)
		delete(set, "contains") // label is its name here
	default:
		return &fieldError{"type", fmt.Errorf("%q is none of file, stream and command_evidence",
			form)}
	}
	set["type"], set["description"] = text(&form), text(&c.Description)
	return set.read(data)
}
