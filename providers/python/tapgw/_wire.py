"""Messages of the protocol as JSON (docs/protocol.md)."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from typing import Any, Optional

from ._errors import INVALID_JSON, PAYLOAD_TOO_LARGE, Error

PROTOCOL_VERSION = 2
MAX_FRAME = 16 << 20
MAX_MESSAGE = 2 << 20
MAX_RESULT = 5 << 20
MAX_TEXT = 8192  # of a context, in bytes
MAX_TOOLS = 100

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

_REQUIRED: dict[str, dict[str, type]] = {
    "auth.pairing": {"prompt": str},
    "sessions": {"active": list},
    "sessions.updated": {"active": list},
    "hello.ack": {"providerId": str, "sessionId": str},
    "ack": {"requestId": str, "sessionId": str},
    "error": {"code": str, "message": str},
    "tool.call": {"id": str, "sessionId": str, "tool": str, "args": dict},
    "tool.cancel": {"id": str, "sessionId": str, "reason": str},
    "gate.check": {"gateId": str, "callId": str, "sessionId": str, "tool": str, "args": dict},
    "transform.request": {"callId": str, "sessionId": str, "section": str, "current": str},
    "session.event": {"sessionId": str, "event": str, "data": dict},
    "session.lifecycle": {"sessionId": str, "state": str},
    "stream.history": {"queryId": str, "streams": dict},
}

_OPTIONAL: dict[str, dict[str, type]] = {
    "sessions": {"token": str},
    "hello.ack": {"reconnectToken": str, "persistDir": str},
    "ack": {"revision": int, "seq": int, "fate": str, "reason": str},
    "error": {"replyTo": str, "requestId": str, "sessionId": str},
    "tool.call": {"traceparent": str},
    "gate.check": {"traceparent": str},
    "session.lifecycle": {"deadline": int},
}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} is no type of JSON")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False,
    default=_plain).encode
_encode_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain).encode
_decode = json.JSONDecoder().decode


def encode(message: dict[str, Any]) -> str:
    """Return the JSON of a message. An Error PAYLOAD_TOO_LARGE says that the gateway would not take it."""
    text = _encode(message)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # a lone surrogate can't be sent as it is
            text = _encode_ascii(message)
    limit = MAX_RESULT if message["type"] == "tool.result" else MAX_MESSAGE
    if 4 * len(text) > limit:
        size = len(text.encode())
        if size > limit:
            what = message["type"]
            raise Error(PAYLOAD_TOO_LARGE,
                f"this {what} is {size} bytes, over the limit of {limit}")
    return text


def check_json(what: str, value: Any) -> None:
    """Raise an Error if a value can't be written as JSON, or has a key twice once it is written."""
    try:
        _encode(value)
        _check_keys(value)
    except (TypeError, ValueError, RecursionError) as err:
        raise Error(INVALID_JSON, f"{what} can't be written as JSON: {err}") from err


def _check_keys(value: Any) -> None:
    if isinstance(value, dict):
        if not all(type(k) is str for k in value) and len(json.loads(_encode(dict.fromkeys(value)))) != len(value):
            raise ValueError("a key stands twice in an object")
        for v in value.values():
            _check_keys(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            _check_keys(v)


_CALL = re.compile(r'\{"type":"tool\.call","id":"([^"\\]{1,100})"')


def call_in(raw: str) -> str:
    """Return the id of a call that can't be read, because it is nested too deep or has a number of many digits."""
    found = _CALL.match(raw)
    return found[1] if found else ""


def decode(raw: str) -> tuple[Optional[dict[str, Any]], str]:
    """Return a message of the gateway, or None and its fault: "" for a type of a later version."""
    try:
        message = _decode(raw)
    except (ValueError, RecursionError) as err:
        return None, f"no JSON: {err}"
    if type(message) is not dict or type(message.get("type")) is not str:
        return None, "no object with a type"
    kind = message["type"]
    required = _REQUIRED.get(kind)
    if required is None:
        return None, ""
    for field, want in required.items():
        if type(message.get(field)) is not want:
            return None, f"{kind}.{field}: must be of type {want.__name__}"
    for field, want in _OPTIONAL.get(kind, {}).items():
        value = message.get(field)
        if value is None:
            message.pop(field, None)
        elif type(value) is not want:
            return None, f"{kind}.{field}: must be of type {want.__name__}"
    return message, ""
