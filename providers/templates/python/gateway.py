"""A stand-in for tapgw in tests: one session, to which it binds one provider."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from typing import Any

import websockets

TOKEN = "ptk-test"  # the one that the stand-in wants from the provider
ANSWERS = {
    "auth": {"type": "sessions", "active": [{"id": "s1", "label": "test", "cwd": "/"}]},
    "hello": {"type": "hello.ack", "protocolVersion": 2, "providerId": "p1", "sessionId": "s1",
              "reconnectToken": "rt-1"},
}


class Gateway:
    """A stand-in on a free port, for an `async with`."""

    url = ""

    async def __aenter__(self) -> Gateway:
        """Listen."""
        self._bound: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._results: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        headers: dict[str, Any] = {"extra_headers": lambda path,
            asked: {"Tapgw-Proof": self._proof(asked)}}
        if int(websockets.__version__.split(".")[0]) >= 14:
            def prove(connection: Any, request: Any, response: Any) -> None:
                response.headers["Tapgw-Proof"] = self._proof(request.headers)
            headers = {"process_response": prove}
        self._server = await websockets.serve(self._serve, "127.0.0.1", 0, **headers)
        self.url = "ws://%s:%d" % list(self._server.sockets)[0].getsockname()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close all connections."""
        self._server.close()
        await self._server.wait_closed()

    async def call(self, tool: str, args: dict[str, Any]) -> Any:
        """Call a tool of the provider and return its result."""
        ws = await asyncio.wait_for(self._bound, 30)
        await ws.send(json.dumps({"type": "tool.call", "id": "c1", "sessionId": "s1", "tool": tool,
            "args": args}))
        result = await asyncio.wait_for(self._results.get(), 30)
        if "error" in result:
            raise AssertionError(result["error"])
        return result["data"]

    def _proof(self, asked: Any) -> str:
        """Show the provider that this gateway knows the token."""
        nonce, address = asked["Tapgw-Prove"].split(" ")[1], self.url[len("ws://"):]
        key = hashlib.sha256(TOKEN.encode()).digest()
        text = f"tapgw proof 1\n{nonce}\n{address}"
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest() + " " + address

    async def _serve(self, ws: Any, path: str = "") -> None:
        async for text in ws:
            message = json.loads(text)
            if message["type"] in ANSWERS:
                await ws.send(json.dumps(ANSWERS[message["type"]]))
            if message["type"] == "hello":
                self._bound.set_result(ws)
            if message["type"] == "tool.result":
                self._results.put_nowait(message)
