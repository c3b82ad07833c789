"""Finding the gateway and its token, and connecting to it (docs/protocol.md, Tokens)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import logging
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional
from urllib.parse import urlsplit

import websockets

from ._errors import ProviderError, RefusedError
from ._wire import MAX_FRAME

ENV_URL = "TAP_GATEWAY_URL"
ENV_TOKEN = "TAP_PROVIDER_TOKEN"
PAIRED_PREFIX = "ext-tok-"
DIAL_TIMEOUT = 5.0
CLOSE_TIMEOUT = 1.0

# websockets logs whole frames at level DEBUG, and one of them has the token.
_quiet = logging.getLogger("tapgw.websockets")
_quiet.setLevel(logging.INFO)


@dataclass(frozen=True)
class Endpoint:
    """A gateway and the token for it."""

    url: str
    token: str = field(default="", repr=False)
    gateway: str = field(default="", repr=False)  # the text of its files: a later one at the same address is another
    fixed_token: bool = False  # it comes from the program or from pairing: no other is ever tried
    from_user: bool = False  # nothing comes from the gateway's files, so a tunnel to the gateway is the user's

    @property
    def paired(self) -> bool:
        """Report whether the token is the result of pairing."""
        return self.token.startswith(PAIRED_PREFIX)


def state_dir() -> Path:
    """Return the directory of the gateway's files."""
    return Path(os.environ.get("COPILOT_HOME") or Path.home() / ".copilot") / "extensions" / "tap"


def check_url(name: str, url: str) -> None:
    """Raise a ProviderError for a URL that can't be a gateway's. An empty one is allowed."""
    if not url:
        return
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as err:
        raise ProviderError(f"{name}: {url!r} is not a URL: {err}") from None
    if parts.scheme not in ("ws", "wss", "http", "https"):
        raise ProviderError(f"{name}: {url!r} must begin with ws:// or wss://")
    if not host:
        raise ProviderError(f"{name}: {url!r} names no host")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def gateway_url(url: str) -> tuple[str, str]:
    """Return the gateway's URL as of now, and the text of gateway.json, which identifies the gateway.

    Without a URL from the user and without that file there is no gateway: any program may listen on the usual port.
    """
    if not url:
        check_url(ENV_URL, os.environ.get(ENV_URL, ""))
    path = state_dir() / "gateway.json"
    info = _read(path)
    found = ""
    try:
        found = json.loads(info)["url"] if info else ""
        check_url("url", found)
    except (ValueError, KeyError, TypeError, AttributeError, ProviderError):
        found = ""  # the file is not written completely
    url = url or os.environ.get(ENV_URL, "") or found
    if not url:
        raise ConnectionError(f"no gateway has written {path} yet; start one, or set {ENV_URL}")
    return url, info


def endpoints(url: str, token: str, token_file: str) -> list[Endpoint]:
    """Return the gateways and tokens to try as of now.

    There are two if the environment has a token but no URL: it may be one of an earlier gateway. A process with both
    in its environment was started by that gateway, and connects only to it.
    """
    named = bool(url or os.environ.get(ENV_URL))
    env_url = os.environ.get(ENV_URL, "")
    found, info = gateway_url(url)
    env = "" if token_file else os.environ.get(ENV_TOKEN, "")
    file = Path(token_file) if token_file else state_dir() / ".provider-token"
    file_token = _read(file)
    tokens = [token or env or file_token]
    if not token and not env_url:
        tokens.append(file_token)
    result = [
        Endpoint(found, t, info + file_token, bool(token), named and i == 0 and bool(token or env))
        for i, t in enumerate(tokens) if t and t not in tokens[:i]
    ]
    if not result:
        raise ConnectionError(f"no token: no gateway has written {file} yet; start one, or set {ENV_TOKEN}")
    return result


class Question:
    """Asks a gateway to prove that it knows the token before it gets it (docs/protocol.md, Is it your gateway?)."""

    def __init__(self, token: str) -> None:
        """Make a question about a token, with a nonce of its own."""
        self.key = hashlib.sha256(token.encode()).digest()
        self.nonce = secrets.token_hex(16)

    def header(self) -> str:
        """Return the value of the header Tapgw-Prove."""
        return hashlib.sha256(self.key).hexdigest()[:16] + " " + self.nonce

    def check(self, answer: str, dialled: str, tunnel: bool) -> None:
        """Raise a ConnectionError unless the answer is a proof for the address that was dialled."""
        proof, _, address = answer.partition(" ")
        text = f"tapgw proof 1\n{self.nonce}\n{address}"
        if not answer:
            raise ConnectionError("it gave no proof")
        want = hmac.new(self.key, text.encode(errors="replace"), hashlib.sha256).hexdigest()
        if not proof.isascii() or not hmac.compare_digest(proof, want):
            raise ConnectionError("its proof is wrong")
        if address != dialled and not tunnel:
            raise ConnectionError("its proof is for another address; if that is a tunnel of yours, give both the URL "
                                  "and the token")


def _address(peer: Any) -> str:
    host, port = peer[:2]
    ip = ipaddress.ip_address(host.partition("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


async def dial(to: Endpoint) -> Any:
    """Open a WebSocket to a gateway that proves that it knows the token, if there is one.

    Raises RefusedError for a gateway that does not know the token, and ConnectionError for all others.
    """
    url = to.url.replace("http", "ws", 1) if to.url.startswith("http") else to.url
    question = Question(to.token)
    modern = int(websockets.__version__.split(".")[0])
    options: dict[str, Any] = {"compression": None, "max_size": MAX_FRAME, "ping_interval": None,
        "logger": _quiet,
                               "open_timeout": DIAL_TIMEOUT, "close_timeout": CLOSE_TIMEOUT}
    if to.token:
        options["additional_headers" if modern >= 14 else "extra_headers"] = {"Tapgw-Prove": question.header()}
    if modern >= 15:
        options["proxy"] = None
    try:
        ws = await websockets.connect(url, **options)
    except Exception as err:  # whatever a stranger answers, there is no gateway
        raise _plain(to.url, err) from err
    if to.token:
        headers = ws.response.headers if hasattr(ws, "response") else ws.response_headers
        try:
            question.check(" ".join(headers.get_all("Tapgw-Proof")), _address(ws.remote_address),
                to.from_user)
        except Exception as err:
            ws.transport.abort()
            await ws.wait_closed()
            raise ConnectionError(f"the server at {to.url} is not the gateway of the token: {err}") from None
    return ws


def _plain(url: str, err: Exception) -> Exception:
    response = getattr(err, "response", None)
    status: Optional[int] = getattr(err, "status_code", None) or getattr(response, "status_code",
        None)
    if status == 401:
        return RefusedError(f"{url}: the gateway refused the token")
    if status is not None:
        return ConnectionError(f"connecting to {url}: it answered {status}; is it a gateway?")
    if isinstance(err, (asyncio.TimeoutError, TimeoutError)):
        return ConnectionError(f"connecting to {url}: no answer within {DIAL_TIMEOUT:g} s")
    return ConnectionError(f"connecting to {url}: {err or repr(err)}")
