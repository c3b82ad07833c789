"""One connection to a gateway, and the handling of its messages."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

from . import _wire
from ._calls import Calls
from ._changes import Changes
from ._discover import CLOSE_TIMEOUT, Endpoint
from ._errors import INTERNAL, ProviderError
from ._link import Link
from ._requests import Requests
from ._run import Run
from ._sessions import Sessions


class Connection(Link):
    """A connection to a gateway, until its end."""

    def __init__(self, run: Run, to: Endpoint, ws: Any, restoring: str) -> None:
        """Make a connection of an open WebSocket. restoring is the reconnect token of auth, or ""."""
        super().__init__(run, to, ws, restoring)
        self.changes = Changes(self)
        self.requests = Requests(self)
        self.calls = Calls(self)
        self.sessions = Sessions(self, self.calls, self.changes, self.requests)
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "sessions": lambda m: self.sessions.on_sessions(m, True),
            "sessions.updated": lambda m: self.sessions.on_sessions(m, False),
            "hello.ack": self.sessions.on_hello_ack,
            "session.lifecycle": self.sessions.on_lifecycle,
            "session.event": self.sessions.on_event,
            "error": self.sessions.on_error,
            "ack": self._on_ack,
            "tool.call": self.calls.on_call,
            "tool.cancel": self.calls.on_cancel,
            "gate.check": self.calls.on_gate,
            "transform.request": self.calls.on_transform,
            "stream.history": self.requests.on_history,
        }

    async def serve(self) -> None:
        """Serve the connection until it is lost or the run is stopped. self.error then says why."""
        self.expect_answer()
        auth = {"type": "auth", "token": self.to.token}
        if self.restoring:
            auth = {"type": "auth", "reconnectToken": self.restoring, "name": self.provider.name}
            if self.provider.instance:
                auth["instance"] = self.provider.instance
        self.send(auth)
        reader = asyncio.ensure_future(self._read())
        writer = asyncio.ensure_future(self._write())
        pinger = asyncio.ensure_future(self._ping())
        try:
            await asyncio.wait({reader, self.over, self.run.stopped},
                return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._end(reader, writer, pinger)

    def receive(self, raw: str) -> None:
        """Handle a message."""
        m, wrong = _wire.decode(raw)
        if m is None:
            if wrong:
                self.log.warning("ignoring a wrong message of the gateway: %s", wrong)
            call = _wire.call_in(raw) if wrong.startswith("no JSON") else ""
            if call and call not in self.calls.running:  # it has no other answer
                self.send({"type": "tool.result", "id": call, "errorCode": INTERNAL,
                           "error": f"Python can't read the arguments: {wrong[:200]}"})
            return
        handler = self._handlers.get(m["type"])
        if handler is not None:
            handler(m)

    def _on_ack(self, m: dict[str, Any]) -> None:
        if not self.changes.confirm(m):
            self.requests.on_receipt(m)

    def offer_changed(self) -> None:
        """Send the gateway the changes of the offer since the last one sent."""
        self.sessions.offer_changed()

    async def _end(self, *own: asyncio.Future[None]) -> None:
        for timer in (self.answer_timer, self.silence_timer, self.retry_timer):
            timer.stop()
        self.open = False
        self.changes.unlink()
        self.run.keep_reconnect_token()
        stopping = self.run.stopped.done() or isinstance(self.error, ProviderError)
        if stopping and not self.lost:
            await self._say_goodbye()
        self.closed = True
        self.out.clear()
        for task in own:
            task.cancel()
        reason = "stopped" if stopping else "disconnected"
        self.calls.end(reason)
        for task in list(self.tasks):
            task.cancel(reason)
        self.requests.end()
        self.ws.transport.abort()
        await asyncio.wait(own)
        try:
            await asyncio.wait_for(self.ws.wait_closed(), CLOSE_TIMEOUT)
        except (Exception, asyncio.CancelledError) as err:
            self.log.debug("closing: %r", err)
