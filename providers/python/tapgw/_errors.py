"""Errors of the SDK, and the codes that they carry."""

from __future__ import annotations

# Codes of a tool's errors. Any other code of a tool arrives as INTERNAL.
NOT_FOUND = "NOT_FOUND"
TIMEOUT = "TIMEOUT"
CANCELLED = "CANCELLED"
DISCONNECTED = "DISCONNECTED"
UNAUTHORIZED = "UNAUTHORIZED"
INTERNAL = "INTERNAL"

# Codes with which the gateway refuses a message. There may be others.
AUTH_FAILED = "AUTH_FAILED"
DUPLICATE_INSTANCE = "DUPLICATE_INSTANCE"
INVALID_JSON = "INVALID_JSON"
INVALID_SESSION = "INVALID_SESSION"
INVALID_STATE = "INVALID_STATE"
PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
RATE_LIMITED = "RATE_LIMITED"
TOOL_CONFLICT = "TOOL_CONFLICT"
UNKNOWN_CALL_ID = "UNKNOWN_CALL_ID"
UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"

RESULT_CODES = frozenset({NOT_FOUND, TIMEOUT, CANCELLED, DISCONNECTED, UNAUTHORIZED, INTERNAL})


class Error(Exception):
    """An error with a code.

    A tool raises one to say how it failed. Methods of Provider raise one when the gateway refuses something;
    what then names the change or the push.
    """

    def __init__(self, code: str, message: str = "", *, retryable: bool = False,
        what: str = "") -> None:
        """Make an error. retryable says that a second try may succeed: of a tool on another instance."""
        super().__init__(code, message)
        self.code = code or INTERNAL
        self.message = message
        self.retryable = retryable
        self.what = what

    def __str__(self) -> str:
        """Return the code and the message, after what failed."""
        text = f"{self.code}: {self.message}" if self.message else self.code
        return f"{self.what}: {text}" if self.what else text


def not_found(message: str) -> Error:
    """Return an error NOT_FOUND, for a tool whose arguments name something that does not exist."""
    return Error(NOT_FOUND, message)


class NotConnectedError(ConnectionError):
    """No session is bound: the gateway is not running, or has no session."""


class NotPairedError(Exception):
    """The session of the pairing, or its gateway, has ended. Call Provider.pair again for another session."""


class ProviderError(Exception):
    """Provider.run can't go on: an option is wrong, or the gateway refuses the token, the offer or the version."""


class RefusedError(Exception):
    """The gateway does not know the token."""
