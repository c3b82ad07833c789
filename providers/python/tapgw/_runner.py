"""One run of a provider: it connects again and again."""

from __future__ import annotations

import asyncio
import random
from typing import Optional

from ._connection import Connection
from ._discover import Endpoint, dial
from ._errors import ProviderError, RefusedError
from ._run import Run
from ._sessions import not_paired

FIRST_WAIT = 0.2
MAX_WAIT = 0.9  # so that a gateway is found within a second of its return
MAX_DROP_WAIT = 5.0  # for a gateway that accepts the provider and soon loses it, again and again
REFUSED_WAIT = 30.0  # how long a refused token is not sent again: a gateway locks out an address that sends too many
STOP_GRACE = 5.0  # how long the run waits for the user's functions at its end


class Runner(Run):
    """One run of a provider."""

    conn: Optional[Connection] = None  # the latest one

    async def run(self) -> None:
        """Connect again and again until the run is stopped, or until waiting can't help (a ProviderError)."""
        try:
            absent = drops = 0  # attempts in a row, and connections in a row that were soon lost
            while not self.stopped.done():
                lasted, err = await self._try_endpoints()
                if self.stopped.done():
                    return
                if isinstance(err, ProviderError):
                    raise err
                if lasted < 0:
                    wait = backoff(absent, MAX_WAIT)
                    absent += 1
                else:
                    absent, drops = 0, 0 if lasted >= MAX_DROP_WAIT else drops
                    wait = backoff(drops, MAX_DROP_WAIT)
                    drops += 1
                self._report_failure(err)
                await asyncio.wait({self.stopped}, timeout=wait)
        finally:
            await self._wait_for_tasks()

    async def _try_endpoints(self) -> tuple[float, Exception]:
        """Try each endpoint until one accepts the provider, and return how long the connection lasted and its end.

        The time is -1 if every attempt failed.
        """
        last: Exception = ConnectionError("no gateway")
        try:
            found = self.provider._endpoints()
        except (ConnectionError, ProviderError) as err:
            return -1, err
        for e in found:
            now = asyncio.get_running_loop().time()
            if now - self.refused.get(e, -REFUSED_WAIT) < REFUSED_WAIT:
                last = RefusedError(f"{e.url}: the gateway refused the token before")
                continue
            lasted, last = await self._connect(e)
            if lasted >= 0 or isinstance(last, ProviderError):
                return lasted, last
        return -1, last

    async def _connect(self, e: Endpoint) -> tuple[float, Exception]:
        """Serve a connection. The time that it lasted is -1 if the gateway did not accept auth.

        A reconnect token comes first; if the gateway refuses it, the token follows at once.
        """
        now = asyncio.get_running_loop().time()
        if self.token and self.token_of == e and now < self.token_until:
            lasted, err = await self._serve(e, self.token)
            if lasted >= 0 or not isinstance(err, RefusedError) or self.stopped.done():
                return lasted, err
        self.token = ""
        lasted, err = await self._serve(e, "")
        if isinstance(err, RefusedError):
            if e.paired:
                return lasted, not_paired(str(err))
            if e.fixed_token:
                return lasted, ProviderError(f"{err}; check the token that the program gives")
            self.refused[e] = asyncio.get_running_loop().time()
        return lasted, err

    async def _serve(self, e: Endpoint, reconnect_token: str) -> tuple[float, Exception]:
        dialling = asyncio.ensure_future(dial(e))
        await asyncio.wait({dialling, self.stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not dialling.done():
            dialling.cancel()
            await asyncio.wait({dialling})
            return -1, ConnectionError("stopped")
        if dialling.exception() is not None:
            err = dialling.exception()
            return -1, err if isinstance(err, Exception) else ConnectionError(repr(err))
        self.conn = conn = Connection(self, e, dialling.result(), reconnect_token)
        await conn.serve()
        at = conn.authenticated_at
        lasted = -1.0 if at is None else asyncio.get_running_loop().time() - at
        return lasted, conn.error or ConnectionError(f"connection to {e.url} lost")

    def _report_failure(self, err: Exception) -> None:
        if self.failing:
            self.log.debug("not connected: %s", err)
            return
        self.failing = True
        self.log.warning("not connected; trying again: %s", err)
        self.report(err)

    async def _wait_for_tasks(self) -> None:
        """Wait for the user's functions that still run. It leaves behind those that ignore that they are cancelled."""
        end = asyncio.get_running_loop().time() + STOP_GRACE
        while self.tasks and asyncio.get_running_loop().time() < end:
            await asyncio.wait(self.tasks, timeout=end - asyncio.get_running_loop().time())
            await asyncio.sleep(0)  # their callbacks take them out
        if self.tasks:
            self.log.warning("a function did not return when it was cancelled; leaving it behind")


def backoff(attempt: int, limit: float) -> float:
    """Return the wait before an attempt: it grows by half each time, up to a limit. The jitter only shortens it."""
    wait = min(FIRST_WAIT * 1.5 ** min(attempt, 20), limit)
    return wait * random.uniform(0.5, 1)
