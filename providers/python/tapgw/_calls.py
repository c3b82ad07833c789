"""Calls, gates and transforms: the user's functions that the gateway asks for."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from typing import TYPE_CHECKING, Any, Optional

from ._errors import CANCELLED, INTERNAL, NOT_FOUND, RESULT_CODES, TIMEOUT, Error
from ._model import Call, Content, File, GateCall, Image, Section
from ._offer import decision_of
from ._tool import Tool, invoke
from ._wire import check_json

if TYPE_CHECKING:
    from ._connection import Connection

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
    if running is None or not message or running.answered or running.info.reason or running.conn.closed:
        return
    try:
        await running.conn.write({"type": "tool.progress", "id": running.info.id, "message": str(message)})
    except Exception as err:  # it is only for people
        running.conn.log.debug("progress of %s not sent: %s", running.info.tool, err)


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

    __slots__ = ("conn", "info", "args", "tool", "task", "answered", "grace", "ended")

    def __init__(self, conn: "Connection", info: Call, args: dict[str, Any], tool: Optional[Tool]) -> None:
        """Make a call that has not begun."""
        self.conn = conn
        self.info = info
        self.args = args
        self.tool = tool
        self.task: Optional[asyncio.Task[None]] = None
        self.answered = False
        self.grace: Optional[asyncio.TimerHandle] = None
        self.ended: Optional[asyncio.Future[None]] = None  # set by who waits for the answer

    async def run(self) -> None:
        """Run the function and answer the call, whatever the function does."""
        _running.set(self)
        try:
            if self.tool is None:
                raise Error(NOT_FOUND, f'this provider has no tool "{self.info.tool}"')
            handler = self.tool.handler
            result = success(await (handler(self.args) if self.tool.is_async else invoke(handler, self.args)))
        except asyncio.CancelledError:
            result = {}
        except (Exception, SystemExit) as err:
            if not isinstance(err, Error) and not self.info.reason:
                self.conn.log.error("the tool %s failed", self.info.tool, exc_info=err)
            result = failure(err)
        text = self.finish(result)
        if text is not None:
            await self.conn.write_text(text)

    def abort(self, reason: str) -> None:
        """Cancel the call. If its function does not return in time, the call is answered without it."""
        if self.info.reason or self.answered:
            return
        self.info.reason = reason
        if self.conn.run.calls.remove(self):
            self.answer_cancelled()
            return
        if self.task is not None:
            self.task.cancel(reason)
        if self.conn.closed:
            self.finish({})
            return
        self.grace = asyncio.get_running_loop().call_later(CANCEL_GRACE, self.answer_cancelled)

    def answer_cancelled(self) -> None:
        """Answer a cancelled call whose function has not returned, or never began."""
        text = self.finish({})
        if text is not None:
            self.conn.send_text(text)

    def finish(self, result: dict[str, Any]) -> Optional[str]:
        """Return the text of the only answer, or None if there was one. A cancelled call is always CANCELLED."""
        if self.answered:
            return None
        self.answered = True
        if self.grace is not None:
            self.grace.cancel()
        self.conn.calls.pop(self.info.id, None)
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(None)
        if self.conn.closed:
            return None
        if self.info.reason or not result:
            result = {"type": "tool.result", "error": "Cancelled", "errorCode": CANCELLED}
        result["id"] = self.info.id
        try:
            return self.conn.encode(result)
        except Exception as err:
            text = f"{err.message}; return a tapgw.File, or less" if isinstance(err, Error) else repr(err)[:1000]
            return self.conn.encode({"type": "tool.result", "id": self.info.id, "error": text, "errorCode": INTERNAL})


class Dispatcher:
    """Runs at most limit calls at once; the others wait in their order."""

    def __init__(self, limit: int, tasks: set[asyncio.Task[Any]]) -> None:
        """Make a dispatcher whose tasks are in a set while they run."""
        self.limit = limit
        self.tasks = tasks
        self.running = 0
        self.waiting: dict[int, RunningCall] = {}

    def start(self, call: RunningCall) -> None:
        """Run a call now, or later when a running one has ended."""
        if self.running >= self.limit:
            self.waiting[id(call)] = call
            return
        self.running += 1
        call.task = task = asyncio.get_running_loop().create_task(call.run())
        self.tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self.tasks.discard(task)
            self.running -= 1
            if task.cancelled():  # before it began
                call.answer_cancelled()
            elif task.exception() is not None:
                call.conn.log.error("answering a call failed", exc_info=task.exception())
            if self.waiting:
                self.start(self.waiting.pop(next(iter(self.waiting))))

        task.add_done_callback(done)

    def remove(self, call: RunningCall) -> bool:
        """Remove a call that waits. It returns False for a call that has begun."""
        return self.waiting.pop(id(call), None) is not None


class Sequencer:
    """Runs the functions of one key one after the other, and those of several keys at the same time."""

    MAX = 1000  # functions of one key that wait: one that hangs must not fill the memory

    def __init__(self, spawn: Any) -> None:
        """Make a sequencer that starts its tasks with spawn."""
        self.spawn = spawn
        self.queues: dict[str, deque[Any]] = {}

    def add(self, key: str, fn: Any) -> bool:
        """Run a coroutine function after the earlier ones of its key. It returns False if too many wait."""
        queue = self.queues.get(key)
        if queue is None:
            self.queues[key] = queue = deque()
            self.spawn(self._work(key))
        if len(queue) >= self.MAX:
            return False
        queue.append(fn)
        return True

    async def _work(self, key: str) -> None:
        queue = self.queues[key]
        try:
            while queue:
                await queue.popleft()()
        finally:
            del self.queues[key]


def on_call(c: "Connection", m: dict[str, Any]) -> None:
    """Start a call."""
    name, session = m["tool"], m["sessionId"]
    if m["id"] in c.calls:
        c.log.warning("ignoring a call that the gateway sent twice: %s", m["id"])
        return
    info = Call(m["id"], session, name, m.get("traceparent", ""), c.persist_dir)
    call = RunningCall(c, info, m["args"], c.provider._offers.tool(session, name))
    c.calls[info.id] = call
    c.run.calls.start(call)
    c.began_call = True


def on_cancel(c: "Connection", m: dict[str, Any]) -> None:
    """Cancel a call, unless its result was sent."""
    call = c.calls.get(m["id"])
    if call is not None:
        call.abort(m["reason"])


def cancel_calls(c: "Connection", session: str, reason: str) -> list[asyncio.Future[None]]:
    """Cancel the calls of a session, and return what is done when they are answered."""
    ended = []
    for call in [x for x in c.calls.values() if x.info.session == session]:
        call.ended = asyncio.get_running_loop().create_future()
        ended.append(call.ended)
        call.abort(reason)
    return ended


def on_gate(c: "Connection", m: dict[str, Any]) -> None:
    """Ask a gate of the user's about a call."""
    rule = c.provider._offers.lookup(
        lambda o: next((r for r in o.rules if r.decide and r.wire.get("gateId") == m["gateId"]), None))
    answer = {"type": "gate.result", "gateId": m["gateId"], "callId": m["callId"], "decision": "deny"}
    if rule is None:
        c.send({**answer, "reason": f'Provider {c.provider.name} has no gate "{m["gateId"]}".'})
        return
    call = GateCall(m["callId"], m["sessionId"], m["tool"], m["args"], m.get("traceparent", ""))

    async def decide() -> None:
        try:
            decision = decision_of(await asyncio.wait_for(invoke(rule.decide, call), GATE_TIMEOUT))
            answer["decision"] = decision.verdict
            if decision.text:
                answer["reason"] = decision.text
        except (Exception, SystemExit) as err:
            if loop.time() >= began + GATE_TIMEOUT:
                c.log.warning("gate %s did not decide in time", m["gateId"])
                return  # the gateway has decided without the gate
            c.log.error("gate %s failed", m["gateId"], exc_info=err)
            answer.update(decision="deny", reason=str(err) or repr(err))
        try:
            c.send(answer)
        except Error:
            c.send({**answer, "decision": "deny", "reason": "The gate's answer is too large to be sent."})

    loop = asyncio.get_running_loop()
    began = loop.time()
    c.spawn(decide())


def on_transform(c: "Connection", m: dict[str, Any]) -> None:
    """Run the user's function for a section. If it fails, the section stays as it is."""
    transform = c.provider._offers.lookup(
        lambda o: t if (t := o.transforms.get(m["section"])) and t.rewrite else None)
    answer = {"type": "transform.result", "callId": m["callId"], "content": m["current"]}
    if transform is None:
        c.send(answer)
        return
    section = Section(m["sessionId"], m["section"], m["current"])

    async def rewrite() -> None:
        try:
            text = await asyncio.wait_for(invoke(transform.rewrite, section), TRANSFORM_TIMEOUT)
            if type(text) is not str:
                raise TypeError(f"it returned {type(text).__name__}, want str")
            c.send({**answer, "content": text})
            return
        except (Exception, SystemExit) as err:
            if loop.time() >= began + TRANSFORM_TIMEOUT:
                c.log.warning("section %s not made in time", section.name)
                return
            c.log.error("section %s stays as it is", section.name, exc_info=err)
        c.send(answer)

    loop = asyncio.get_running_loop()
    began = loop.time()
    c.spawn(rewrite())
