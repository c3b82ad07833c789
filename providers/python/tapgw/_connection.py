"""One connection to a gateway."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Optional

from . import _calls, _changes, _requests, _sessions, _wire
from ._discover import CLOSE_TIMEOUT, Endpoint
from ._errors import INTERNAL, Error, NotConnectedError, ProviderError, RefusedError
from ._model import Session

if TYPE_CHECKING:
    from ._runner import Runner

PING_EVERY = 15.0
PONG_TIMEOUT = 10.0
TAKEN_OVER = 4001  # the close code of a connection whose reconnect token a newer one used


class Timer:
    """Runs a function of the connection once, later."""

    def __init__(self, conn: "Connection", fn: Callable[[], None]) -> None:
        """Make a timer that does not run."""
        self.conn = conn
        self.fn = fn
        self.handle: Optional[asyncio.TimerHandle] = None

    def start(self, delay: float) -> None:
        """Run the function after so many seconds, and not before."""
        self.stop()
        self.handle = asyncio.get_running_loop().call_later(delay, self.conn.step, self.fn)

    def stop(self) -> None:
        """Don't run it."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None


class Connection:
    """A connection and the provider's state on it. Everything runs on the event loop of Provider.run.

    What arrives is handled by functions that don't wait, so each sees a state that no other is about to change. They
    queue what they send. state is "auth" until the gateway has accepted the token, "hello" while there is no session
    to bind to, "ack" when hello was sent, "bound", and "ending" while the user's code cleans up after the session.
    """

    def __init__(self, run: "Runner", to: Endpoint, ws: Any, restoring: str) -> None:
        """Make a connection of an open WebSocket. restoring is the reconnect token of auth, or ""."""
        self.run, self.to, self.ws, self.restoring = run, to, ws, restoring
        self.provider = run.provider
        self.log = run.log
        self.state = "auth"
        self.authenticated_at: Optional[float] = None
        self.closed = False  # nothing is sent any more
        self.lost = False  # nothing comes any more
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: Optional[Exception] = None  # why this side gave up
        self.tasks: set[asyncio.Task[Any]] = set()  # they are cancelled with the connection
        self.out: deque[str] = deque()
        self.more = asyncio.Event()

        self.active: list[Session] = []
        self.ended: set[str] = set()  # sessions that have ended and are still in the list
        self.unbindable: set[str] = set()  # sessions of the list that the gateway refused to bind
        self.hello_session = ""
        self.provider_id = self.persist_dir = ""
        self.bindings: dict[str, _sessions.Bound] = {}
        self.joining: dict[str, _sessions.Joining] = {}
        self.said_waiting = False
        self.retry_in = _changes.FIRST_RETRY

        self.sent: Optional[_changes.SentChange] = None
        self.update_count = 0
        self.confirms_updates = False  # gateways of the core profile answer no updates
        self.paused = False  # a change was RATE_LIMITED
        self.answer_timer = Timer(self, self._no_answer)
        self.silence_timer = Timer(self, lambda: _changes.silence(self))
        self.retry_timer = Timer(self, self._retry)

        self.calls: dict[str, _calls.RunningCall] = {}
        self.began_call = False  # since the reader looked
        self.requests: dict[str, _requests.Request] = {}
        self.request_count = 0
        self.gives_receipts = False
        self.receipt_wait = _changes.ACK_WAIT  # of a push, while it is not known whether the gateway gives receipts
        self.querying = asyncio.Lock()

    async def serve(self) -> None:
        """Serve the connection until it is lost or the run is stopped. self.error then says why."""
        self.answer_timer.start(_changes.ANSWER_TIMEOUT)
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
            await asyncio.wait({reader, self.over, self.run.stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._end(reader, writer, pinger)

    async def _read(self) -> None:
        try:
            async for raw in self.ws:
                if type(raw) is str:
                    self.step(self._receive, raw)
                    if self.began_call:  # it goes on before the next message is waited for
                        self.began_call = False
                        await asyncio.sleep(0)
                else:
                    self.log.warning("the gateway sent a binary frame; ignored")
        except Exception as err:  # the end of the connection
            self.log.debug("connection ended: %r", err)
        self.lost = True
        if self.ws.close_code == TAKEN_OVER:  # coming back would take the place from the newer connection again
            self.give_up(ProviderError(f"{self.to.url}: a newer connection took over with this one's reconnect token"))
            return
        reason = f"{self.ws.close_reason} ({self.ws.close_code})" if self.ws.close_code != 1006 else ""
        text = f"the gateway closed it: {reason}" if reason else "the gateway went away"
        self.give_up(ConnectionError(f"connection to {self.to.url} lost: {text}"))

    def _receive(self, raw: str) -> None:
        m, wrong = _wire.decode(raw)
        if m is None:
            if wrong:
                self.log.warning("ignoring a wrong message of the gateway: %s", wrong)
            call = _wire.call_in(raw) if wrong.startswith("no JSON") else ""
            if call and call not in self.calls:  # nobody else would answer it
                self.send({"type": "tool.result", "id": call, "errorCode": INTERNAL,
                           "error": f"Python can't read the arguments: {wrong[:200]}"})
            return
        handler = _HANDLERS.get(m["type"])
        if handler is not None:
            handler(self, m)

    def step(self, fn: Callable[..., None], *args: Any) -> None:
        """Run a handler. An exception ends the connection, and a ProviderError ends the run."""
        if self.over.done():
            return
        try:
            fn(*args)
        except (ConnectionError, ProviderError, RefusedError, Error) as err:
            self.give_up(err)
        except Exception as err:
            self.log.error("handling a message failed", exc_info=err)
            self.give_up(err)

    def give_up(self, err: Exception) -> None:
        """End the connection because of err."""
        if not self.over.done():
            self.error = err
            self.over.set_result(None)

    def encode(self, message: dict[str, Any]) -> str:
        """Return the text of a message; an Error says that it is too large."""
        return _wire.encode(message)

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message."""
        self.send_text(_wire.encode(message))

    def send_text(self, text: str) -> None:
        """Queue the text of a message."""
        if not self.closed:
            self.out.append(text)
            self.more.set()

    async def write(self, message: dict[str, Any]) -> None:
        """Send a message after the queued ones, and wait while the gateway does not read."""
        await self.write_text(_wire.encode(message))

    async def write_text(self, text: str) -> None:
        """Send the text of a message. Nothing is sent once the connection has ended: its reader notices."""
        if self.out:
            self.send_text(text)
        elif not self.closed:
            try:
                await self.ws.send(text)
            except Exception as err:
                self.log.debug("not sent: %r", err)

    async def _write(self) -> None:
        while True:
            await self.more.wait()
            self.more.clear()
            while self.out:
                try:
                    await self.ws.send(self.out.popleft())
                except Exception as err:
                    self.log.debug("not sent: %r", err)
                    return

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY)
            try:
                pong = await asyncio.wait_for(self.ws.ping(), PONG_TIMEOUT)
                await asyncio.wait_for(pong, PONG_TIMEOUT)
            except Exception:
                self.give_up(ConnectionError(f"connection to {self.to.url} lost: the gateway does not answer pings"))
                return

    def wake(self) -> None:
        """Look at the offer and its queue soon."""
        asyncio.get_running_loop().call_soon(self.step, self._offer_changed)

    def _offer_changed(self) -> None:
        if self.state == "hello":
            _sessions.bind(self)  # a hello that was refused may be accepted now
        elif self.state == "bound":
            if self.provider.is_for_all:
                _sessions.join(self)  # a session.ready that was refused may be accepted now
            _changes.send_changes(self)

    def _retry(self) -> None:
        self.paused = False
        self._offer_changed()

    def _no_answer(self) -> None:
        raise ConnectionError(f"{self.to.url}: no answer within {_changes.ANSWER_TIMEOUT:g} s")

    def add_request(self, prefix: str, r: _requests.Request) -> str:
        """Register a request and return its id."""
        self.request_count += 1
        request = f"{prefix}-{self.request_count}"
        self.requests[request] = r
        return request

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine until the connection ends."""
        task = self.run.spawn(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def report_refusal(self, err: Exception) -> None:
        """Log and report an error that does not end the run."""
        self.log.warning("the gateway refused: %s", err)
        self.run.report(err)

    async def _end(self, *own: asyncio.Future[None]) -> None:
        for timer in (self.answer_timer, self.silence_timer, self.retry_timer):
            timer.stop()
        self.provider._conn = None
        _changes.unlink(self)
        self.run.keep_reconnect_token()
        stopping = self.run.stopped.done() or isinstance(self.error, ProviderError)
        if stopping and not self.lost:
            await self._say_goodbye()
        self.closed = True
        self.out.clear()
        for task in own:
            task.cancel()
        reason = "stopped" if stopping else "disconnected"
        for call in list(self.calls.values()):
            call.abort(reason)
        for task in list(self.tasks):
            task.cancel(reason)
        _requests.end_all(self)
        self.ws.transport.abort()
        await asyncio.wait(own)
        try:
            await asyncio.wait_for(self.ws.wait_closed(), CLOSE_TIMEOUT)
        except (Exception, asyncio.CancelledError) as err:
            self.log.debug("closing: %r", err)

    async def _say_goodbye(self) -> None:
        """Send what is queued and goodbye, and close; the gateway has a second for it."""
        self.send({"type": "goodbye", "reason": "shutting down"})
        queue, self.out = list(self.out), deque()
        self.closed = True

        async def close() -> None:
            for text in queue:
                await self.ws.send(text)
            await self.ws.close()

        try:
            await asyncio.wait_for(close(), CLOSE_TIMEOUT)
        except Exception as err:
            self.log.debug("closing: %r", err)


def _on_ack(c: Connection, m: dict[str, Any]) -> None:
    if c.sent is not None and c.sent.id == m["requestId"]:
        _changes.confirm(c, m)
    else:
        _requests.on_receipt(c, m)


_HANDLERS: dict[str, Callable[[Connection, dict[str, Any]], None]] = {
    "sessions": lambda c, m: _sessions.on_sessions(c, m, True),
    "sessions.updated": lambda c, m: _sessions.on_sessions(c, m, False),
    "hello.ack": _sessions.on_hello_ack,
    "session.lifecycle": _sessions.on_lifecycle,
    "session.event": _sessions.on_event,
    "error": _sessions.on_error,
    "ack": _on_ack,
    "tool.call": _calls.on_call,
    "tool.cancel": _calls.on_cancel,
    "gate.check": _calls.on_gate,
    "transform.request": _calls.on_transform,
    "stream.history": _requests.on_history,
}


def connected(conn: Optional[Connection], what: str) -> Connection:
    """Return the connection for pushes and queries, or raise a NotConnectedError."""
    if conn is None or conn.closed:
        raise NotConnectedError(f"{what}: not bound to a session")
    return conn
