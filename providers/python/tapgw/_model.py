"""The types that a provider's functions take and return."""

from __future__ import annotations

import base64
import datetime
import re
from dataclasses import dataclass
from typing import Any, Callable, Coroutine, Literal, Optional, Union

from ._wire import check_json

ALL_SESSIONS = "all"

Level = Literal["keep", "surface", "inject"]
Outcome = Literal["drop", "keep", "surface", "inject"]
Scope = Literal["instance", "provider", "tool"]


@dataclass(frozen=True)
class Session:
    """An entry of the gateway's list of sessions. cwd is "" in a session that this provider may not bind to."""

    id: str
    label: str = ""
    cwd: str = ""
    foreground: bool = False


@dataclass(frozen=True)
class Binding:
    """The session that a provider is bound to. persist_dir is "" without the right to one."""

    session: str
    cwd: str
    provider_id: str
    persist_dir: str


@dataclass(frozen=True)
class SessionEvent:
    """A change of a bound session's state: "started", "idle" or "shutdown.pending".

    With "shutdown.pending", deadline is how many seconds cleaning up may take.
    """

    session: str
    state: str
    deadline: float = 0


@dataclass(frozen=True)
class Concurrency:
    """How many calls the gateway sends at once: to this instance, to all of the provider, or of each tool."""

    max: int
    scope: Scope = "instance"


@dataclass(eq=False)
class Call:
    """The call that a tool's function answers; current_call returns it. reason is set once it is cancelled."""

    id: str
    session: str
    tool: str
    traceparent: str
    persist_dir: str
    reason: str = ""


@dataclass(frozen=True)
class Image:
    """A result that the model sees as an image."""

    data: bytes
    mime_type: str = "image/png"

    def wire(self) -> dict[str, str]:
        """Return the form that the gateway knows."""
        return {"image": f"data:{self.mime_type};base64,{base64.b64encode(self.data).decode()}"}


@dataclass(frozen=True)
class Part:
    """One part of a Content: type is "text", "image", "audio" or "resource".

    data are the bytes of an image, a sound or a resource, which may be in a file of the persist directory instead.
    An image and a sound need a mime_type, a resource needs a uri.
    """

    type: str
    text: str = ""
    data: Optional[bytes] = None
    mime_type: str = ""
    uri: str = ""
    name: str = ""
    description: str = ""
    file: Optional[File] = None

    def wire(self) -> dict[str, Any]:
        """Return the form that the gateway knows."""
        wire: dict[str, Any] = {"type": self.type}
        for key, value in (("text", self.text), ("mimeType", self.mime_type), ("uri", self.uri),
                           ("name", self.name), ("description", self.description)):
            if value:
                wire[key] = value
        if self.data is not None:
            wire["data"] = base64.b64encode(self.data).decode()
        if self.file is not None:
            wire["file"] = self.file.wire()
        return wire


@dataclass(frozen=True)
class Content:
    """A result of several parts, of which a model gets those that it can take. data is for programs."""

    parts: list[Part]
    data: Any = None


@dataclass(frozen=True)
class File:
    """A result in a file of the persist directory, up to 64 MiB. ttl: seconds until you may delete it."""

    path: str
    mime_type: str = ""
    ttl: float = 0

    def wire(self) -> dict[str, Any]:
        """Return the form that the gateway knows."""
        if not str(self.path):
            raise ValueError("the result is a file without a path")
        wire: dict[str, Any] = {"path": str(self.path)}
        if self.mime_type:
            wire["mimeType"] = self.mime_type
        if self.ttl > 0:
            wire["ttl"] = int(-(-self.ttl // 1))
        return wire


@dataclass(frozen=True)
class Receipt:
    """The gateway's report about an event.

    fate is "stored", "surfaced", "queued", "delivered" or "dropped"; "" comes from a gateway that sends no
    receipts. each has one receipt for each session that got a broadcast; the other fields are then empty.
    """

    session: str = ""
    seq: int = 0
    fate: str = ""
    reason: str = ""
    each: tuple["Receipt", ...] = ()


@dataclass(frozen=True)
class FilterRule:
    """Gives an outcome to the events whose text matches a JavaScript regular expression."""

    match: str
    outcome: Outcome


@dataclass(frozen=True)
class Entry:
    """An event that a stream keeps."""

    stream: str
    provider: str
    time: datetime.datetime
    text: str
    level: str
    metadata: Optional[dict[str, Any]] = None
    prompt: str = ""


@dataclass(frozen=True)
class Match:
    """The tool calls that a rule is about: all parts that are not empty must match.

    tool is a name or a glob; "shell", "edit" and "read" stand for the session's own tools. args is a JavaScript
    regular expression on the arguments as compact JSON, file a glob, provider the owner of the tool.
    """

    tool: str = ""
    args: str = ""
    file: str = ""
    provider: str = ""

    def wire(self) -> dict[str, str]:
        """Return the parts that are not empty."""
        parts = {"tool": self.tool, "args": self.args, "file": self.file, "provider": self.provider}
        return {k: v for k, v in parts.items() if v}


@dataclass(frozen=True)
class GateCall:
    """A tool call that a gate decides about. id is that of the question."""

    id: str
    session: str
    tool: str
    args: dict[str, Any]
    traceparent: str


@dataclass(frozen=True)
class Decision:
    """The answer of a gate: allow(), allow_with(text) or deny(reason)."""

    verdict: str
    text: str = ""


def allow() -> Decision:
    """Let the call run."""
    return Decision("allow")


def allow_with(text: str) -> Decision:
    """Let the call run, and give the model a text with it."""
    return Decision("context", text)


def deny(reason: str) -> Decision:
    """Stop the call, with a reason for the model."""
    return Decision("deny", reason)


@dataclass(frozen=True)
class Section:
    """A section of the system prompt; current is its text with the changes of earlier providers."""

    session: str
    name: str
    current: str


@dataclass(frozen=True)
class UserMessage:
    """A prompt that a session has got."""

    session: str
    content: str


@dataclass(frozen=True)
class ToolRequest:
    """A tool call that the model asks for."""

    name: str
    args: Any


@dataclass(frozen=True)
class AssistantMessage:
    """A complete message of the model."""

    session: str
    content: str
    tool_requests: tuple[ToolRequest, ...] = ()


@dataclass(frozen=True)
class ToolExecution:
    """A tool call that has ended, of any tool in the session. duration is in seconds.

    It is the only event that an external provider may subscribe to. provider is "" for the session's own tools; code
    is the host's for a failure, such as "denied".
    """

    session: str
    tool: str
    provider: str
    args: Any
    failed: bool
    output: str
    duration: float
    code: str = ""


@dataclass(frozen=True)
class AssistantIntent:
    """The model's announcement of its next step."""

    session: str
    intent: str


@dataclass(frozen=True)
class SessionError:
    """A turn or the session failed."""

    session: str
    message: str


@dataclass(frozen=True)
class Pushed:
    """An event of a provider that the session's timeline shows, also one of this provider.

    It takes an internal token or the grant "questions".
    """

    session: str
    provider: str
    stream: str
    level: str
    text: str


@dataclass(frozen=True)
class QuestionEnd:
    """How a question ended.

    reason is "answered", "expired", "withdrawn" or "session.ended"; there may be others. by, of an answered one, is
    "user" or "provider:NAME"; person is who answered, as that provider says.
    """

    reason: str
    by: str = ""
    person: str = ""


Event = Union[UserMessage, AssistantMessage, ToolExecution, AssistantIntent, SessionError, Pushed]

EVENTS: dict[type, str] = {
    UserMessage: "user.message",
    AssistantMessage: "assistant.message",
    ToolExecution: "tool.execution_complete",
    AssistantIntent: "assistant.intent",
    SessionError: "session.error",
    Pushed: "event.pushed",
}


def read_event(session: str, name: str, data: dict[str, Any]) -> Event:
    """Return an event of the gateway. A KeyError, TypeError or AttributeError says that it is wrong."""
    if name == "user.message":
        return UserMessage(session, data["content"])
    if name == "assistant.message":
        asked = tuple(ToolRequest(r["name"], r.get("args")) for r in data.get("toolRequests") or ())
        return AssistantMessage(session, data["content"], asked)
    if name == "tool.execution_complete":
        result = data["result"]
        return ToolExecution(session, data["tool"], data.get("provider") or "", data.get("args"),
                             result["type"] != "success", result.get("output") or "", data["durationMs"] / 1000,
                             result.get("code") or "")
    if name == "session.error":
        return SessionError(session, data["message"])
    if name == "event.pushed":
        return Pushed(session, data["provider"], data["stream"], data["level"], data["event"])
    return AssistantIntent(session, data["intent"])


def time_of(text: str) -> datetime.datetime:
    """Return a time of the wire: RFC 3339, UTC. A TypeError or AttributeError says that it is wrong."""
    # Python 3.10 reads neither Z nor other than three or six digits.
    whole, fraction = re.fullmatch(r"(.{19})(?:\.(\d+))?Z", text).groups()  # type: ignore[union-attr]
    at = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.timezone.utc)
    return at.replace(microsecond=int(((fraction or "") + "000000")[:6]))


class Question:
    """A question of a session to its user, as on_question gets it.

    kind is "permission", "input" or "form"; there may be others. detail of a permission is all that will be done;
    choices and freeform are of an input, schema of a form. The texts are the model's or a tool's: show those of a
    permission whole, since the person allows all of it. end is set once the question is over.
    """

    def __init__(
        self, session: str, m: dict[str, Any], send: Callable[["Question", dict[str, Any]],
            Coroutine[Any, Any, None]],
    ) -> None:
        """Make a question of an event's data; send sends its answer.

        A KeyError, TypeError or AttributeError says that the data is wrong.
        """
        self.id: str = m["id"]
        self.session = session
        self.kind: str = m["kind"]
        self.message: str = m["message"]
        self.detail: str = m.get("detail") or ""
        self.choices: tuple[str, ...] = tuple(m.get("choices") or ())
        self.freeform: bool = m.get("freeform") is True
        self.schema: Optional[dict[str, Any]] = m.get("schema")
        self.asked_at: datetime.datetime = time_of(m["askedAt"])
        self.expires_at: datetime.datetime = time_of(m["expiresAt"])
        self.end: Optional[QuestionEnd] = None
        self._send = send

    async def answer(
        self, *, decision: str = "", text: str = "", content: Optional[dict[str,
            Any]] = None, person: str = "",
    ) -> None:
        """Answer the question; the first answer counts, wherever it comes from.

        decision is "once", "session" or "deny" for a permission; "deny" also declines an input or a form. text answers
        an input, or says with "deny" why. content answers a form. person is who answered, for the timeline, in at most
        100 bytes. The Error has the gateway's code: INVALID_STATE if the question is over (the message says who
        answered), INVALID_JSON for an answer that it does not take. After a NotConnectedError the answer may count
        or not: if the question still waits, on_question gets it again.
        """
        what = f"answering question {self.id}"
        fields: dict[str, Any] = {"decision": decision, "text": text, "content": content,
            "person": person}
        message = {"type": "question.answer", "question": self.id,
            **{k: v for k, v in fields.items() if v or v == {}}}
        if content is not None:
            check_json(f"{what}: content", content)
        await self._send(self, message)
