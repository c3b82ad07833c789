"""The SDK under fire: cut messages, gateways that go and come, storms of calls."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
import unittest
from typing import Any, AsyncIterator, Awaitable, Callable
from unittest import mock

import websockets

from tapgw import Error, Match, Provider, ProviderError, _calls, _link, _runner, current_call

PATIENCE = 20.0
TOKEN = "ptk-1"
SESSIONS = {"type": "sessions", "active": [{"id": "s1", "label": "one", "cwd": "/one"}]}
ACK = {"type": "hello.ack", "protocolVersion": 2, "providerId": "p-1", "sessionId": "s1",
    "reconnectToken": "rt-1"}


def proof(nonce: str, address: str, token: str = TOKEN) -> str:
    """Return the proof that a gateway gives."""
    key = hashlib.sha256(token.encode()).digest()
    text = f"tapgw proof 1\n{nonce}\n{address}".encode()
    return hmac.new(key, text, hashlib.sha256).hexdigest() + " " + address


class Gateway:
    """A scripted gateway: each connection is handled by a function of the test's."""

    def __init__(self, serve: Callable[[Any], Awaitable[None]], token: str = TOKEN) -> None:
        """Make a gateway that does not listen yet."""
        self.serve, self.token, self.port, self.dials = serve, token, 0, 0
        self.server: Any = None

    async def start(self) -> None:
        """Listen, at the same port as before if there was one."""
        async def handler(ws: Any, path: str = "") -> None:
            self.dials += 1
            await self.serve(ws)

        def prove(path: str, headers: Any) -> list[tuple[str, str]]:
            nonce = headers["Tapgw-Prove"].partition(" ")[2]
            return [("Tapgw-Proof", proof(nonce, f"127.0.0.1:{self.port}", self.token))]

        self.server = await websockets.serve(
            handler, "127.0.0.1", self.port, compression=None, ping_interval=None, max_queue=None,
            extra_headers=prove)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Go away without a word."""
        for ws in list(self.server.websockets):
            ws.transport.abort()
        self.server.close()
        await self.server.wait_closed()

    @property
    def url(self) -> str:
        """Return the gateway's URL."""
        return f"ws://127.0.0.1:{self.port}"


async def bind(ws: Any) -> dict[str, Any]:
    """Take a provider through auth and hello, and return its auth."""
    auth: dict[str, Any] = json.loads(await ws.recv())
    await ws.send(json.dumps(SESSIONS))
    await ws.recv()
    await ws.send(json.dumps(ACK))
    return auth


def call(id: str, tool: str, **args: Any) -> str:
    """Return a call."""
    return json.dumps({"type": "tool.call", "id": id, "sessionId": "s1", "tool": tool,
        "args": args})


@contextlib.asynccontextmanager
async def running(p: Provider) -> AsyncIterator["asyncio.Task[None]"]:
    """Run a provider, and check that it leaves no task behind."""
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(p.run())
    try:
        yield task
    finally:
        p.stop()
        await asyncio.wait({task}, timeout=PATIENCE)
        left = [t for t in asyncio.all_tasks() - before if "Provider" in repr(t)
            or "tapgw" in repr(t)]
        assert not left, f"{len(left)} tasks are left: {left[:3]}, want none"


class FireTest(unittest.IsolatedAsyncioTestCase):
    """Each call ends once, whatever happens."""

    def setUp(self) -> None:
        """Reconnect at once, and write no logs."""
        for target, name, value in [(_runner, "FIRST_WAIT", 0.002), (_runner, "MAX_WAIT", 0.002),
                                    (_runner, "MAX_DROP_WAIT", 0.002)]:
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    async def asyncSetUp(self) -> None:
        """Run without asyncio's debug mode, which makes each task ten times as slow."""
        asyncio.get_running_loop().set_debug(False)

    def provider(self, url: str, **options: Any) -> Provider:
        """Make a provider with three tools."""
        p = Provider("fire", url=url, token=TOKEN, **options)

        @p.tool(description="Returns the text")
        async def echo(text: str) -> str:
            return text

        @p.tool(description="Waits until it is cancelled")
        async def slow() -> None:
            await asyncio.get_running_loop().create_future()

        @p.tool(description="Ignores that it is cancelled, and takes a while")
        async def stubborn() -> str:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(PATIENCE)
            await asyncio.sleep(0.05)
            return "late"

        return p

    async def test_storm(self) -> None:
        """10,000 calls in flight end once each, by their result, a cancel or a time-out; no task is left."""
        n = 10_000
        for limit in (64, n):
            with self.subTest(limit=limit), mock.patch.object(_calls, "CANCEL_GRACE", 0.02):
                await self.storm(n, limit)

    async def storm(self, n: int, limit: int) -> None:
        """Make calls and cancel them while they wait, run and end."""
        results: dict[str, list[str]] = {}
        done, all_ended = asyncio.Event(), asyncio.Event()

        async def read(ws: Any) -> None:
            async for raw in ws:
                m = json.loads(raw)
                if m["type"] == "tool.result":
                    results.setdefault(m["id"], []).append(m.get("errorCode") or m["data"])
                    if len(results) == n:
                        all_ended.set()
                    if m["id"] == "last":
                        done.set()

        async def serve(ws: Any) -> None:
            await bind(ws)
            reading = asyncio.ensure_future(read(ws))
            for i in range(n):
                await ws.send(call(f"c{i}", ("echo", "slow", "stubborn", "slow")[i % 4],
                    **({"text": "x"} if i % 4 == 0
                                                                                            else {})))
                if i % 4 == 3:  # some end while others begin
                    await ws.send(json.dumps({"type": "tool.cancel", "id": f"c{i}",
                        "sessionId": "s1",
                                              "reason": "interrupted"}))
            for i in range(n):
                for _ in range(1 + i % 2):  # some twice
                    await ws.send(json.dumps({"type": "tool.cancel", "id": f"c{i}",
                        "sessionId": "s1",
                                              "reason": "timeout"}))
            await all_ended.wait()
            await ws.send(call("last", "echo", text="x"))
            await reading

        gateway = Gateway(serve)
        await gateway.start()
        p = self.provider(gateway.url, max_calls=limit)
        async with running(p):
            await asyncio.wait_for(done.wait(), 3 * PATIENCE)
        await gateway.stop()
        self.assertEqual(len(results), n + 1)
        self.assertEqual([r for r in results.values() if len(r) != 1], [])
        wrong = [(k, r) for k, r in results.items() if r[0] not in ("x", "CANCELLED")]
        self.assertEqual(wrong, [])

    async def test_cut_calls(self) -> None:
        """Calls of a lost connection are cancelled, are not answered on the next one, and are all gone."""
        reasons: list[str] = []
        second = asyncio.Event()
        seen: list[str] = []

        async def serve(ws: Any) -> None:
            auth = await bind(ws)
            if "token" in auth:
                for i in range(1000):
                    await ws.send(call(f"c{i}", "note"))
                await ws.send(call("there", "echo", text="x"))
                while json.loads(await ws.recv()).get("id") != "there":
                    pass
                ws.transport.abort()
                return
            await ws.send(call("again", "echo", text="x"))
            seen.append(json.loads(await ws.recv())["id"])
            second.set()
            await ws.wait_closed()

        gateway = Gateway(serve)
        await gateway.start()
        p = self.provider(gateway.url, max_calls=2000)

        @p.tool(description="Notes why it is cancelled")
        async def note() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                info = current_call()
                reasons.append(info.reason if info else "no call")

        async with running(p):
            await asyncio.wait_for(second.wait(), PATIENCE)
        await gateway.stop()
        self.assertEqual((reasons, seen), (["disconnected"] * 1000, ["again"]))

    async def test_killed_and_restarted(self) -> None:
        """A provider comes back to a gateway that was killed; one of another token refuses a token that was given."""
        bound = asyncio.Semaphore(0)

        async def serve(ws: Any) -> None:
            await bind(ws)
            bound.release()
            await ws.wait_closed()

        gateway = Gateway(serve)
        await gateway.start()
        async with running(self.provider(gateway.url)) as task:
            for _ in range(20):
                await asyncio.wait_for(bound.acquire(), PATIENCE)
                await gateway.stop()
                await gateway.start()
            await asyncio.wait_for(bound.acquire(), PATIENCE)
            await gateway.stop()
            gateway.token = "ptk-2"  # it can't prove that it knows the first, so it does not get it
            dials = gateway.dials
            await gateway.start()
            await asyncio.sleep(0.05)
            self.assertFalse(task.done(),
                f"the provider ended after a refused token: {task}, want it to dial on")
            self.assertGreater(gateway.dials, dials)
            gateway.token = TOKEN
            await asyncio.wait_for(bound.acquire(), PATIENCE)
        await gateway.stop()

    async def test_frozen(self) -> None:
        """A gateway that answers no pings is given up."""
        bound, frozen = asyncio.Semaphore(0), asyncio.Event()

        async def serve(ws: Any) -> None:
            await bind(ws)
            bound.release()
            if not frozen.is_set():
                frozen.set()
                ws.transport.pause_reading()
            await ws.wait_closed()

        gateway = Gateway(serve)
        await gateway.start()
        with mock.patch.object(_link, "PING_EVERY", 0.01), mock.patch.object(_link, "PONG_TIMEOUT",
            0.5):
            async with running(self.provider(gateway.url)):
                await asyncio.wait_for(bound.acquire(), PATIENCE)
                await asyncio.wait_for(bound.acquire(), PATIENCE)
        await gateway.stop()

    async def test_cut_at_every_byte(self) -> None:
        """A gateway that goes away in the middle of anything is no more than a lost connection."""
        frames = b"".join(frame(json.dumps(m)) for m in (SESSIONS, ACK)) + frame(call("c1", "echo",
            text="x"))
        at, whole, port = 0, asyncio.Event(), 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal at
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            key = hashlib.sha1((fields["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
            nonce = fields["Tapgw-Prove"].partition(" ")[2]
            answer = ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                      f"Sec-WebSocket-Accept: {base64.b64encode(key).decode()}\r\n"
                      f"Tapgw-Proof: {proof(nonce, f'127.0.0.1:{port}')}\r\n\r\n").encode() + frames
            writer.write(answer[:at])
            if at >= len(answer):
                whole.set()
                await reader.read()  # until the provider leaves
            at += 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        p = self.provider(f"ws://127.0.0.1:{port}")
        async with running(p) as task:
            await asyncio.wait_for(whole.wait(), 6 * PATIENCE)
            self.assertFalse(task.done(), f"the provider ended: {task}, want it to dial on")
        server.close()
        self.assertGreater(at, 400)

    async def test_odd_results(self) -> None:
        """The call is answered, for any result or exception of a function and for any arguments."""
        class Odd(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        odd: dict[str, Any] = {
            "huge": 10 ** 5000, "nan": float("nan"), "object": object(), "bytes": b"x", "keys": {1: 1, "1": 2},
            "surrogate": "\ud800", "set": {1}, "raises": Odd(), "exit": SystemExit(3), "stop": StopIteration(1),
            "cancel": asyncio.CancelledError(), "code": Error(404, {"x": 1}),  # type: ignore[arg-type]
            "empty": Error("", ""),
        }
        answers: dict[str, Any] = {}
        done = asyncio.Event()

        async def serve(ws: Any) -> None:
            await bind(ws)
            deep = call("deep", "echo").replace("{}",
                '{"text":' + "[" * 90_000 + "]" * 90_000 + "}")
            digits = call("digits", "echo").replace("{}", '{"text":' + "9" * 5000 + "}")
            texts = [t.replace('": ', '":').replace(', "', ',"') for t in (deep, digits)]
            texts += [call(f"{name}-{kind}", kind, name=name) for name in odd for kind in ("task",
                "thread")]
            for text in texts:
                await ws.send(text)
            while len(answers) < len(texts):
                m = json.loads(await ws.recv())
                self.assertNotIn(m["id"], answers)
                answers[m["id"]] = m
            done.set()
            await ws.wait_closed()

        gateway = Gateway(serve)
        await gateway.start()
        p = self.provider(gateway.url)

        def value(name: str) -> Any:
            if isinstance(odd[name], BaseException):
                raise odd[name]
            return odd[name]

        @p.tool(description="Returns it")
        async def task(name: str) -> Any:
            return value(name)

        @p.tool(description="Returns it from a thread")
        def thread(name: str) -> Any:
            return value(name)

        async with running(p):
            await asyncio.wait_for(done.wait(), PATIENCE)
        await gateway.stop()
        whole = {name for name, m in answers.items() if "data" in m}
        self.assertEqual(whole, {"surrogate-task", "surrogate-thread"})
        self.assertEqual([m for m in answers.values() if "data" not in m
            and not isinstance(m.get("error"), str)], [])

    async def test_odd_changes(self) -> None:
        """A change with a value of a wrong type fails for its caller, and changes nothing else."""
        bound = asyncio.Event()

        async def serve(ws: Any) -> None:
            await bind(ws)
            await ws.wait_closed()

        gateway = Gateway(serve)
        await gateway.start()
        p = self.provider(gateway.url, on_bound=lambda _: bound.set())
        async with running(p):
            await asyncio.wait_for(bound.wait(), PATIENCE)
            changes: list[Any] = [p.append("tone", object()), p.set_filter("x", 7),  # type: ignore[arg-type]
                                  p.deny(Match(tool="x"), {1: object()}),  # type: ignore[arg-type]
                                  p.replace("x", "y" * (3 << 20))]
            for change in changes:
                with self.assertRaises((ValueError, Error)):
                    await asyncio.wait_for(change, PATIENCE)
        self.assertEqual(gateway.dials, 1)
        await gateway.stop()

    async def test_refused(self) -> None:
        """A token that the program gave and the gateway refuses ends the run."""
        async def serve(ws: Any) -> None:
            await ws.recv()
            await ws.send(json.dumps({"type": "error", "code": "AUTH_FAILED", "message": "no",
                "replyTo": "auth"}))
            await ws.wait_closed()

        gateway = Gateway(serve)
        await gateway.start()
        with self.assertRaisesRegex(ProviderError, "check the token"):
            await asyncio.wait_for(self.provider(gateway.url).run(), PATIENCE)
        await gateway.stop()

    async def test_stop_in_thread(self) -> None:
        """A plain function runs on a thread, sees its call, and does not hold up the end."""
        release = asyncio.Event()
        got: list[Any] = []

        async def serve(ws: Any) -> None:
            await bind(ws)
            await ws.send(call("c1", "plain"))
            got.append(json.loads(await ws.recv()))
            release.set()
            await ws.wait_closed()

        gateway = Gateway(serve)
        await gateway.start()
        p = self.provider(gateway.url)

        @p.tool(description="Says who calls")
        def plain() -> str:
            info = current_call()
            return info.session if info else "nobody"

        async with running(p):
            await asyncio.wait_for(release.wait(), PATIENCE)
        await gateway.stop()
        self.assertEqual(got, [{"type": "tool.result", "id": "c1", "data": "s1"}])


def frame(text: str) -> bytes:
    """Return a text frame as a server sends it."""
    data = text.encode()
    size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
    return b"\x81" + size + data


if __name__ == "__main__":
    unittest.main()
