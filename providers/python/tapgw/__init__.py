"""The Python SDK for writing a provider of tapgw: docs/providers.md explains it by task.

    from tapgw import Provider

    p = Provider("hello")

    @p.tool
    async def greet(name: str) -> str:
        '''Say hello to someone.'''
        return f"Hello, {name}!"

    p.main()
"""

from ._calls import current_call, progress
from ._errors import (
    AUTH_FAILED, CANCELLED, DISCONNECTED, DUPLICATE_INSTANCE, INTERNAL, INVALID_JSON, INVALID_SESSION, INVALID_STATE,
    NOT_FOUND, PAYLOAD_TOO_LARGE, RATE_LIMITED, TIMEOUT, TOOL_CONFLICT, UNAUTHORIZED, UNSUPPORTED_VERSION, Error,
    NotConnectedError, NotPairedError, ProviderError, not_found,
)
from ._model import (
    ALL_SESSIONS, AssistantIntent, AssistantMessage, Binding, Call, Concurrency, Content, Decision, Entry, File,
    FilterRule, GateCall, Image, Match, Part, Pushed, Question, QuestionEnd, Receipt, Section, Session, SessionError,
    SessionEvent, ToolExecution, ToolRequest, UserMessage, allow, allow_with, deny,
)
from ._offer import Rule
from ._provider import Provider
from ._tool import Tool, tool_of

__version__ = "2.0.0"  # the first number is the protocol's version

__all__ = [
    "ALL_SESSIONS", "AUTH_FAILED", "AssistantIntent", "AssistantMessage", "Binding", "CANCELLED", "Call",
    "Concurrency", "Content", "DISCONNECTED", "DUPLICATE_INSTANCE", "Decision", "Entry", "Error", "File", "FilterRule",
    "GateCall", "INTERNAL", "INVALID_JSON", "INVALID_SESSION", "INVALID_STATE", "Image", "Match", "NOT_FOUND",
    "NotConnectedError", "NotPairedError", "PAYLOAD_TOO_LARGE", "Part", "Provider", "ProviderError", "Pushed", "Question",
    "QuestionEnd", "RATE_LIMITED", "Receipt", "Rule", "Section", "Session", "SessionError", "SessionEvent", "TIMEOUT",
    "TOOL_CONFLICT", "Tool", "ToolExecution", "ToolRequest", "UNAUTHORIZED", "UNSUPPORTED_VERSION", "UserMessage",
    "allow", "allow_with", "current_call", "deny", "not_found", "progress", "tool_of",
]
