"""Pairing: a token for a provider without one (docs/protocol.md, Pairing)."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Callable

from . import _wire
from ._discover import ENV_URL, Endpoint, dial, gateway_url
from ._errors import Error
from ._link import ANSWER_TIMEOUT
from ._options import Options
from ._tool import invoke


async def pair(p: Options, ask: Callable[[str], Any]) -> Endpoint:
    """Pair, and return the gateway with the token."""
    url, _ = gateway_url(p.url)
    ws = await dial(Endpoint(url))
    try:
        auth = {"type": "auth", "mode": "pair", "name": p.name}
        if p.instance:
            auth["instance"] = p.instance
        if p.session and not p.is_for_all:
            auth["session"] = p.session
        await ws.send(_wire.encode(auth))
        question = await asyncio.wait_for(_next(ws, "auth.pairing"), ANSWER_TIMEOUT)
        # The gateway may close while the user looks for the code.
        answer = asyncio.ensure_future(_next(ws, "sessions"))
        asking = asyncio.ensure_future(invoke(ask, question["prompt"]))
        try:
            await asyncio.wait({answer, asking}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                answer.result()
                raise ConnectionError("pairing: the gateway answered before the code")
            await ws.send(_wire.encode({"type": "auth.confirm", "code": asking.result()}))
            token = (await asyncio.wait_for(answer, ANSWER_TIMEOUT)).get("token")
        finally:
            for task in (answer, asking):
                task.cancel()
            await asyncio.gather(answer, asking, return_exceptions=True)
        if not token:
            raise ConnectionError("pairing: the gateway gave no token")
        return Endpoint(url, token, "", True, bool(p.url or os.environ.get(ENV_URL)))
    except asyncio.TimeoutError:
        raise ConnectionError(f"pairing: no answer within {ANSWER_TIMEOUT:g} s") from None
    finally:
        await ws.close()


async def _next(ws: Any, kind: str) -> dict[str, Any]:
    """Return the next message of a kind. An error message of the gateway is raised as an Error."""
    async for raw in ws:
        m, _ = _wire.decode(raw) if type(raw) is str else (None, "")
        if m is not None and m["type"] == "error":
            raise Error(m["code"], m["message"], what="pairing")
        if m is not None and m["type"] == kind:
            return m
    raise ConnectionError("pairing: the gateway closed the connection")
