"""The state that outlives the connections of a run, and the tasks that run for the user."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Callable, Coroutine, Optional, Protocol

from ._discover import Endpoint
from ._options import Options
from ._tool import call_back

RECONNECT_WINDOW = 30.0


class Job(Protocol):
    """A call, for the dispatcher."""

    task: Optional[asyncio.Task[None]]

    async def run(self) -> None:
        """Run the function and answer the call."""

    def answer_cancelled(self) -> None:
        """Answer a call that was cancelled before it began."""


class Dispatcher:
    """Runs at most limit calls at once; the others wait in their order."""

    def __init__(self, limit: int, tasks: set[asyncio.Task[Any]], log: Any) -> None:
        """Make a dispatcher whose tasks are in a set while they run."""
        self.limit = limit
        self.tasks = tasks
        self.log = log
        self.running = 0
        self.waiting: dict[int, Job] = {}

    def start(self, call: Job) -> None:
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
                self.log.error("answering a call failed", exc_info=task.exception())
            if self.waiting:
                self.start(self.waiting.pop(next(iter(self.waiting))))

        task.add_done_callback(done)

    def remove(self, call: Job) -> bool:
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


class Run:
    """The state of a run that outlives its connections."""

    def __init__(self, provider: Options) -> None:
        """Make a run; stopped is set once it is to end."""
        self.provider = provider
        self.log: Any = logging.LoggerAdapter(provider.logger, {"provider": provider.name})
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tasks: set[asyncio.Task[Any]] = set()  # every task of the run
        self.calls = Dispatcher(provider.max_calls, self.tasks, self.log)
        self.events = Sequencer(self.spawn)
        self.session = ""  # the last bound session, until its end
        self.prepared: set[str] = set()  # sessions that prepare_session has run for
        self.refused: dict[Endpoint, float] = {}  # when each token was refused
        self.failing = False  # the last attempt failed, and that was reported
        self.last: Optional[asyncio.Task[Any]] = None  # the latest callback
        self.token, self.token_of, self.token_until = "", Endpoint(""), 0.0  # of the reconnect

    def stop(self) -> None:
        """End the run."""
        if not self.stopped.done():
            self.stopped.set_result(None)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine that the run's end waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.log.error("a task failed", exc_info=task.exception())

    async def guarded(self, work: Coroutine[Any, Any, Any], what: str) -> None:
        """Run a callback of the user's, and log the exceptions that it raises."""
        try:
            await work
        except (Exception, SystemExit) as err:
            self.log.error("%s failed", what, exc_info=err)

    def callback(self, fn: Callable[..., Any], *args: Any,
        timeout: Optional[float] = None) -> asyncio.Task[Any]:
        """Run a callback after the earlier ones."""
        before = self.last

        async def work() -> None:
            if before is not None and not before.done():
                await asyncio.wait({before})
            await self.guarded(asyncio.wait_for(call_back(fn, *args), timeout),
                getattr(fn, "__name__", "callback"))

        self.last = self.spawn(work())
        return self.last

    def report(self, err: Exception) -> None:
        """Give an error to on_error."""
        if self.provider.on_error is not None:
            self.callback(self.provider.on_error, err)

    def accepted(self) -> None:
        """Note that the gateway has accepted auth: the reconnect token is void now."""
        self.failing = False
        self.refused.clear()
        self.token = ""

    def remember(self, token: str, to: Endpoint) -> None:
        """Remember the reconnect token of a binding."""
        self.token, self.token_of, self.token_until = token, to, float("inf")

    def keep_reconnect_token(self) -> None:
        """Note that the connection has ended."""
        now = asyncio.get_running_loop().time()
        self.token_until = min(self.token_until, now + RECONNECT_WINDOW)
