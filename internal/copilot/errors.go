package copilot

import (
	"errors"
	"fmt"

	"tapgw/internal/protocol"
)

// internalError gives an error the code INTERNAL, unless it has a code already.
func internalError(err error) error {
	if _, ok := errors.AsType[*protocol.Error](err); ok {
		return err
	}
	return &protocol.Error{Code: protocol.CodeInternal, Message: err.Error()}
}

// invalidRequest is the error INVALID_JSON for a field of a request. The message begins with the
// field's name.
func invalidRequest(format string, args ...any) error {
	return &protocol.Error{Code: protocol.CodeInvalidJSON, Message: fmt.Sprintf(format, args...)}
}

// invalidState is the error INVALID_STATE for a request that is right but can't be met now.
func invalidState(format string, args ...any) error {
	return &protocol.Error{Code: protocol.CodeInvalidState, Message: fmt.Sprintf(format, args...)}
}

// unsetVariable is the error for a key of [copilot] that names an environment variable which is not
// set.
func unsetVariable(key, variable string) error {
	return invalidState(
		"%s in [copilot] of tapgw.toml: the environment variable %q of the gateway is not set",
		key, variable)
}
