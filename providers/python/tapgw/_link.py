"""A connection to a gateway without its messages: the socket, its timers, and the sessions that it is bound to."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Coroutine, Optional

from ._discover import CLOSE_TIMEOUT, Endpoint
from ._errors import Error, ProviderError, RefusedError
from ._model import Binding
from ._run import Run
from ._wire import encode

PING_EVERY = 15.0
PONG_TIMEOUT = 10.0
ANSWER_TIMEOUT = 10.0
TAKEN_OVER = 4001  # the close code of a connection whose reconnect token a newer one used


@dataclass(eq=False)
class Bound:
    """A joined session, until its end."""

    info: Binding
    ending: bool = False
    started: bool = False  # on_bound was started, or will never be
    task: Optional[asyncio.Task[Any]] = None  # of on_bound


class Timer:
    """Runs a function of the connection once, later."""

    def __init__(self, link: "Link") -> None:
        """Make a timer that does not run."""
        self.link = link
        self.handle: Optional[asyncio.TimerHandle] = None

    def start(self, delay: float, fn: Callable[[], None]) -> None:
        """Run a function after so many seconds, in place of an earlier one."""
        self.stop()
        self.handle = asyncio.get_running_loop().call_later(delay, self.link.step, fn)

    def stop(self) -> None:
        """Don't run it."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None


class Link:
    """A connection's socket and state; Connection handles the messages. All of it runs on one event loop.

    Messages are handled by functions that don't wait, so each sees a state that no other is about to change. They
    queue their answers. state is "auth" until the gateway has accepted the token, "hello" while there is no session
    to bind to, "ack" when hello was sent, "bound", and "ending" while the user's code cleans up after the session.
    """

    def __init__(self, run: Run, to: Endpoint, ws: Any, restoring: str) -> None:
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

        self.bindings: dict[str, Bound] = {}
        self.hello_session = ""
        self.provider_id = self.persist_dir = ""
        self.open = False  # a session is bound, so pushes and queries may be sent
        self.began_call = False  # since the reader looked
        self.count = 0  # of ids
        self.answer_timer, self.silence_timer, self.retry_timer = Timer(self), Timer(self), Timer(self)

    def receive(self, raw: str) -> None:
        """Handle a message."""
        raise NotImplementedError

    def offer_changed(self) -> None:
        """Send the gateway the changes of the offer since the last one sent."""
        raise NotImplementedError

    async def _read(self) -> None:
        try:
            async for raw in self.ws:
                if type(raw) is str:
                    self.step(self.receive, raw)
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

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message."""
        self.send_text(encode(message))

    def send_text(self, text: str) -> None:
        """Queue the text of a message."""
        if not self.closed:
            self.out.append(text)
            self.more.set()

    async def write(self, message: dict[str, Any]) -> None:
        """Send a message after the queued ones, and wait while the gateway does not read."""
        await self.write_text(encode(message))

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
        asyncio.get_running_loop().call_soon(self.step, self.offer_changed)

    def next_id(self, kind: str) -> str:
        """Return an id for a message that is answered."""
        self.count += 1
        return f"{kind}-{self.count}"

    def expect_answer(self) -> None:
        """End the connection unless answer_timer is stopped in time."""
        self.answer_timer.start(ANSWER_TIMEOUT, self._no_answer)

    def _no_answer(self) -> None:
        raise ConnectionError(f"{self.to.url}: no answer within {ANSWER_TIMEOUT:g} s")

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

    async def _say_goodbye(self) -> None:
        """Send the queued messages and goodbye, and close; the gateway has a second for it."""
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
