"""A provider for tapgw in one file: it gives the agent's session a tool, greet.

    pip install websockets        (Debian: apt-get install python3-websockets)
    python3 hello.py

It waits for the gateway and for a session, serves calls until the session
ends, and then waits for the next one. Ctrl-C or SIGTERM: it says goodbye. A
gateway that refuses its token ends it: the same one would be refused again.
"""

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import signal
import sys
from pathlib import Path

import websockets

RETRY_SECONDS = 1
MAX_FRAME = 16 * 1024 * 1024


async def greet(name, seconds=0):
    await asyncio.sleep(seconds)
    return f"Hello, {name}!"


# The tools: the function that runs, and what the model sees. A task that is
# cancelled means that nobody waits for the result any more.
TOOLS = {
    "greet": (
        greet,
        {
            "name": "greet",
            "description": "Greet someone by name",
            "parameters": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "Who to greet"},
                    "seconds": {"type": "number", "minimum": 0, "description": "How long to think first"},
                },
                "required": ["name"],
            },
        },
    ),
}


def say(*words, to=sys.stdout):
    print(*words, file=to, flush=True)


def discover():
    """Return the gateway's URL and a token: from the environment, else from the
    gateway's files. They are read anew for each connection, because each
    gateway has a token of its own. Without either no gateway runs: another
    user's may have the usual port."""
    home = Path(os.environ.get("COPILOT_HOME") or Path.home() / ".copilot")

    def read(name):
        try:
            return (home / "extensions" / "tap" / name).read_text().strip()
        except OSError:
            return ""

    info = read("gateway.json")
    url = os.environ.get("TAP_GATEWAY_URL") or (json.loads(info)["url"] if info else "")
    return url, os.environ.get("TAP_PROVIDER_TOKEN") or read(".provider-token")


class Question:
    """Asks a gateway to prove that it knows the token before it is sent that, at
    the address that was dialled (docs/protocol.md, "Is it your gateway?")."""

    def __init__(self, token):
        self.key = hashlib.sha256(token.encode()).digest()
        self.nonce = secrets.token_hex(16)
        value = hashlib.sha256(self.key).hexdigest()[:16] + " " + self.nonce
        modern = int(websockets.__version__.split(".")[0]) >= 14
        self.options = {"additional_headers" if modern else "extra_headers": {"Tapgw-Prove": value}}

    def is_answered_by(self, ws):
        headers = ws.response.headers if hasattr(ws, "response") else ws.response_headers
        answer = " ".join(headers.get_all("Tapgw-Proof"))  # a stranger may send what it likes
        if not answer.isascii():
            return False
        proof, _, address = answer.partition(" ")
        text = f"tapgw proof 1\n{self.nonce}\n{address}"
        want = hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
        host, port = ws.remote_address[:2]
        dialled = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        tunnel = os.environ.get("TAP_GATEWAY_URL") and os.environ.get("TAP_PROVIDER_TOKEN")  # the user's own
        return hmac.compare_digest(proof, want) and (tunnel or address == dialled)


class Connection:
    """One connection to a gateway, until either side closes it."""

    def __init__(self, ws):
        self.ws = ws
        self.bound = False
        self.refused = False
        self.calls = {}  # id of a call in flight: its task

    async def send(self, **message):
        await self.ws.send(json.dumps(message))

    async def serve(self, token):
        await self.send(type="auth", token=token)
        try:
            async for raw in self.ws:
                msg = json.loads(raw)
                handler = getattr(self, "on_" + msg["type"].replace(".", "_"), None)
                if handler:  # newer gateways say more
                    await handler(msg)
        finally:
            for task in self.calls.values():
                task.cancel()

    async def on_sessions(self, msg):
        if self.bound or not msg["active"]:
            return  # the gateway says when there is one
        await self.send(
            type="hello",
            name="hello-python",
            protocolVersion=2,
            session=msg["active"][0]["id"],  # the gateway puts the best one first
            tools=[definition for _, definition in TOOLS.values()],
        )

    on_sessions_updated = on_sessions

    async def on_hello_ack(self, msg):
        self.bound = True
        say(f"bound to session {msg['sessionId']} as {msg['providerId']}")

    async def on_tool_call(self, msg):
        self.calls[msg["id"]] = asyncio.create_task(self.call(msg))
        await asyncio.sleep(0)  # a task that is cancelled before it began answers nothing

    async def on_tool_cancel(self, msg):
        say(f"cancelled: {msg['reason']}")
        if task := self.calls.get(msg["id"]):
            task.cancel()

    async def on_session_lifecycle(self, msg):
        if msg["state"] == "shutdown.pending":
            say("the session ends")
            await self.goodbye("session ending")

    async def on_error(self, msg):
        say(f"gateway: {msg['code']}: {msg['message']}", to=sys.stderr)
        self.refused = msg["code"] == "AUTH_FAILED"

    async def call(self, msg):
        """Run a tool. Each call gets exactly one result, whatever its tool does."""
        try:
            if msg["tool"] not in TOOLS:
                result = {"error": f"no tool {msg['tool']}", "errorCode": "NOT_FOUND"}
            else:
                run, _ = TOOLS[msg["tool"]]
                result = {"data": await run(**msg["args"])}
        except asyncio.CancelledError:
            result = {"error": "Cancelled", "errorCode": "CANCELLED"}
        except Exception as err:
            result = {"error": str(err) or repr(err), "errorCode": "INTERNAL"}
        self.calls.pop(msg["id"], None)
        try:
            await self.send(type="tool.result", id=msg["id"], **result)
        except websockets.ConnectionClosed:
            pass  # the gateway has ended the call by itself

    async def goodbye(self, reason):
        await self.send(type="goodbye", reason=reason)
        await self.ws.close()


async def connect(url, token, stop):
    """Serve one connection, and return whether the gateway refused the token."""
    question = Question(token)
    async with websockets.connect(url, max_size=MAX_FRAME, **question.options) as ws:
        if not question.is_answered_by(ws):
            say(f"the server at {url} is not the gateway of the token", to=sys.stderr)
            return False
        conn = Connection(ws)
        serving = asyncio.create_task(conn.serve(token))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set() and not serving.done():
            await conn.goodbye("stopped")
        stopped.cancel()
        await serving
        return conn.refused


async def provide(stop):
    while not stop.is_set():
        url, token = discover()
        refused = False
        try:
            if url and token:  # else no gateway has written them yet
                refused = await connect(url, token, stop)
        except (OSError, websockets.WebSocketException, asyncio.TimeoutError) as err:
            # No gateway, or none any more; 401 is a gateway that does not know the token.
            status = getattr(err, "status_code", getattr(getattr(err, "response", None), "status_code", None))
            if status == 401:
                say("gateway: AUTH_FAILED: it does not know the token", to=sys.stderr)
                refused = True
        if refused and discover()[1] == token:  # else a new gateway has written its own
            sys.exit(f"stopping: the gateway at {url} refused the token; start this again with the right one")
        try:
            await asyncio.wait_for(stop.wait(), RETRY_SECONDS)
        except asyncio.TimeoutError:
            pass


async def main():
    stop = asyncio.Event()
    for sig in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sig, stop.set)
    await provide(stop)


asyncio.run(main())
