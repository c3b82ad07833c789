"""Calls, gates and transforms: the user's functions that the gateway asks for."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, Optional

from ._errors import CANCELLED, INTERNAL, NOT_FOUND, RESULT_CODES, TIMEOUT, Error
from ._link import Link
from ._model import Call, Content, File, GateCall, Image, Section
from ._offer import decision_of
from ._tool import Tool, invoke
from ._wire import check_json, encode

CANCEL_GRACE = 2.0  # how long a cancelled function may run on; the gateway frees the call's slot after 5 s
GATE_TIMEOUT = 5.0
TRANSFORM_TIMEOUT = 2.0

_running: contextvars.ContextVar["RunningCall"] = contextvars.ContextVar("tapgw call")


def current_call() -> Optional[Call]:
    """Return the call that the running function answers, or None elsewhere."""
    running = _running.get(None)
    return running.info if running else None


async def progress(message: str) -> None:
    """Show a line in the session's timeline while a call runs. It does not extend the call's timeout.

    It does nothing for an empty message, outside a call, and after the call has ended.
    """
    running = _running.get(None)
    if running is None or not message or running.answered or running.info.reason or running.link.closed:
        return
    try:
        await running.link.write({"type": "tool.progress", "id": running.info.id,
            "message": str(message)})
    except Exception as err:  # it is only for people
        running.link.log.debug("progress of %s not sent: %s", running.info.tool, err)


def success(value: Any) -> dict[str, Any]:
    """Return the result of a call whose function returned a value."""
    kind = type(value)
    if kind is str:
        return {"type": "tool.result", "data": value}
    if isinstance(value, File):
        return {"type": "tool.result", "file": value.wire()}
    if isinstance(value, Content):
        result = {"type": "tool.result", "content": [part.wire() for part in value.parts]}
        if value.data is not None:
            check_json("the result", value.data)
            result["data"] = value.data
        return result
    if isinstance(value, Image):
        value = value.wire()
    elif value is not None:
        check_json("the result", value)
    return {"type": "tool.result", "data": value}


def failure(err: BaseException) -> dict[str, Any]:
    """Return the result of a call whose function raised an exception."""
    code = INTERNAL
    try:
        text = str(err)
    except Exception:  # the text is the user's code too
        text = ""
    result: dict[str, Any] = {"type": "tool.result"}
    if isinstance(err, Error):
        code = err.code if err.code in RESULT_CODES else INTERNAL
        text = text if err.what or not err.message else str(err.message)
        if err.retryable:
            result["retryable"] = True
    elif isinstance(err, (asyncio.TimeoutError, TimeoutError)):
        code = TIMEOUT
    elif isinstance(err, SystemExit):
        text = f"the tool's function called sys.exit({text})"
    result["error"] = text or (type(err).__name__ if code == INTERNAL else code)
    result["errorCode"] = code
    return result


class RunningCall:
    """One tool.call, from its arrival to its only result."""

    __slots__ = ("calls", "link", "info", "args", "tool", "task", "answered", "grace", "ended")

    def __init__(self, calls: "Calls", info: Call, args: dict[str, Any],
        tool: Optional[Tool]) -> None:
        """Make a call that has not begun."""
        self.calls = calls
        self.link = calls.link
        self.info = info
        self.args = args
        self.tool = tool
        self.task: Optional[asyncio.Task[None]] = None
        self.answered = False
        self.grace: Optional[asyncio.TimerHandle] = None
        self.ended: Optional[asyncio.Future[None]] = None  # set by the code that waits for the answer

    async def run(self) -> None:
        """Run the function and answer the call, whatever the function does."""
        _running.set(self)
        try:
            if self.tool is None:
                raise Error(NOT_FOUND, f'this provider has no tool "{self.info.tool}"')
            handler = self.tool.handler
            result = success(await (handler(self.args) if self.tool.is_async else invoke(handler,
                self.args)))
        except asyncio.CancelledError:
            result = {}
        except (Exception, SystemExit) as err:
            if not isinstance(err, Error) and not self.info.reason:
                self.link.log.error("the tool %s failed", self.info.tool, exc_info=err)
            result = failure(err)
        text = self.finish(result)
        if text is not None:
            await self.link.write_text(text)

    def abort(self, reason: str) -> None:
        """Cancel the call. If its function does not return in time, the call is answered without it."""
        if self.info.reason or self.answered:
            return
        self.info.reason = reason
        if self.link.run.calls.remove(self):
            self.answer_cancelled()
            return
        if self.task is not None:
            self.task.cancel(reason)
        if self.link.closed:
            self.finish({})
            return
        self.grace = asyncio.get_running_loop().call_later(CANCEL_GRACE, self.answer_cancelled)

    def answer_cancelled(self) -> None:
        """Answer a cancelled call whose function has not returned, or never began."""
        text = self.finish({})
        if text is not None:
            self.link.send_text(text)

    def finish(self, result: dict[str, Any]) -> Optional[str]:
        """Return the text of the only answer, or None for any further one. A cancelled call is always CANCELLED."""
        if self.answered:
            return None
        self.answered = True
        if self.grace is not None:
            self.grace.cancel()
        self.calls.running.pop(self.info.id, None)
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(None)
        if self.link.closed:
            return None
        if self.info.reason or not result:
            result = {"type": "tool.result", "error": "Cancelled", "errorCode": CANCELLED}
        result["id"] = self.info.id
        try:
            return encode(result)
        except Exception as err:
            text = f"{err.message}; return a tapgw.File, or less" if isinstance(err,
                Error) else repr(err)[:1000]
            return encode({"type": "tool.result", "id": self.info.id, "error": text,
                "errorCode": INTERNAL})


class Calls:
    """The calls of one connection, and the gates and sections that the gateway asks for."""

    def __init__(self, link: Link) -> None:
        """Make the calls of a connection."""
        self.link = link
        self.provider = link.provider
        self.offers = link.provider._offers
        self.running: dict[str, RunningCall] = {}

    def on_call(self, m: dict[str, Any]) -> None:
        """Start a call."""
        name, session = m["tool"], m["sessionId"]
        if m["id"] in self.running:
            self.link.log.warning("ignoring a call that the gateway sent twice: %s", m["id"])
            return
        info = Call(m["id"], session, name, m.get("traceparent", ""), self.link.persist_dir)
        call = RunningCall(self, info, m["args"], self.offers.tool(session, name))
        self.running[info.id] = call
        self.link.run.calls.start(call)
        self.link.began_call = True

    def on_cancel(self, m: dict[str, Any]) -> None:
        """Cancel a call, unless its result was sent."""
        call = self.running.get(m["id"])
        if call is not None:
            call.abort(m["reason"])

    def cancel(self, session: str, reason: str) -> list[asyncio.Future[None]]:
        """Cancel the calls of a session, and return a future that is done when they are answered."""
        ended = []
        for call in [x for x in self.running.values() if x.info.session == session]:
            call.ended = asyncio.get_running_loop().create_future()
            ended.append(call.ended)
            call.abort(reason)
        return ended

    def on_gate(self, m: dict[str, Any]) -> None:
        """Ask a gate of the user's about a call."""
        rule = self.offers.lookup(
            lambda o: next((r for r in o.rules if r.decide and r.wire.get("gateId") == m["gateId"]),
                None))
        answer = {"type": "gate.result", "gateId": m["gateId"], "callId": m["callId"],
            "decision": "deny"}
        if rule is None:
            self.link.send({**answer,
                "reason": f'Provider {self.provider.name} has no gate "{m["gateId"]}".'})
            return
        call = GateCall(m["callId"], m["sessionId"], m["tool"], m["args"], m.get("traceparent", ""))

        async def decide() -> None:
            try:
                decision = decision_of(await asyncio.wait_for(invoke(rule.decide, call),
                    GATE_TIMEOUT))
                answer["decision"] = decision.verdict
                if decision.text:
                    answer["reason"] = decision.text
            except (Exception, SystemExit) as err:
                if loop.time() >= began + GATE_TIMEOUT:
                    self.link.log.warning("gate %s did not decide in time", m["gateId"])
                    return  # the gateway has decided without the gate
                self.link.log.error("gate %s failed", m["gateId"], exc_info=err)
                answer.update(decision="deny", reason=str(err) or repr(err))
            try:
                self.link.send(answer)
            except Error:
                self.link.send({**answer, "decision": "deny",
                    "reason": "The gate's answer is too large to be sent."})

        loop = asyncio.get_running_loop()
        began = loop.time()
        self.link.spawn(decide())

    def on_transform(self, m: dict[str, Any]) -> None:
        """Run the user's function for a section. If it fails, the section stays as it is."""
        transform = self.offers.lookup(
            lambda o: t if (t := o.transforms.get(m["section"])) and t.rewrite else None)
        answer = {"type": "transform.result", "callId": m["callId"], "content": m["current"]}
        if transform is None:
            self.link.send(answer)
            return
        section = Section(m["sessionId"], m["section"], m["current"])

        async def rewrite() -> None:
            try:
                text = await asyncio.wait_for(invoke(transform.rewrite, section), TRANSFORM_TIMEOUT)
                if type(text) is not str:
                    raise TypeError(f"it returned {type(text).__name__}, want str")
                self.link.send({**answer, "content": text})
                return
            except (Exception, SystemExit) as err:
                if loop.time() >= began + TRANSFORM_TIMEOUT:
                    self.link.log.warning("section %s not made in time", section.name)
                    return
                self.link.log.error("section %s stays as it is", section.name, exc_info=err)
            self.link.send(answer)

        loop = asyncio.get_running_loop()
        began = loop.time()
        self.link.spawn(rewrite())

    def end(self, reason: str) -> None:
        """Cancel all calls, at the end of the connection."""
        for call in list(self.running.values()):
            call.abort(reason)
