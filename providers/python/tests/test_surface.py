"""The surface is typed and documented, and small things of it."""

import ast
import asyncio
import inspect
import os
import types
import unittest
from pathlib import Path
from typing import Any, Iterator
from unittest import mock

import tapgw
from tapgw import Error, Provider, ProviderError, Receipt
from tapgw import _calls, _changes, _discover, _requests, _runner, _wire


def public() -> Iterator[tuple[str, Any]]:
    """Return all functions of the package that it defines itself."""
    modules = [m for name, m in vars(tapgw).items() if isinstance(m, types.ModuleType)
        and name.startswith("_")]
    for module in modules:
        for name, value in vars(module).items():
            if getattr(value, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value
            elif inspect.isclass(value):
                yield f"{module.__name__}.{name}", value
                for member, fn in vars(value).items():
                    if inspect.isfunction(fn) and fn.__module__ == module.__name__ and fn.__qualname__.startswith(name):
                        yield f"{module.__name__}.{name}.{member}", fn


class SurfaceTest(unittest.TestCase):
    """The whole package."""

    def test_documented(self) -> None:
        """Each public function and class has a docstring, and annotations of all that it takes and returns."""
        seen = 0
        for name, value in public():
            generated = getattr(value, "__qualname__", "").endswith((".__eq__", ".__repr__",
                ".__hash__"))
            last = name.rsplit(".", 1)[1]
            if generated or last in ("__delattr__", "__setattr__", "__replace__"):
                continue
            seen += 1
            with self.subTest(name=name):
                if not last.startswith("_"):
                    self.assertTrue(inspect.getdoc(value), f"{name} has no docstring, want one")
                if inspect.isfunction(value) and value.__name__ != "<lambda>":
                    hints = value.__annotations__
                    names = [p.name for p in inspect.signature(value).parameters.values() if p.name != "self"]
                    missing = [n for n in [*names, "return"] if n not in hints]
                    self.assertEqual(missing, [], "annotations that are missing")
        self.assertGreater(seen, 150)

    def test_names(self) -> None:
        """All names that the package promises are there."""
        self.assertEqual([n for n in tapgw.__all__ if not hasattr(tapgw, n)], [])

    def test_layers(self) -> None:
        """No module imports itself by way of others: not within a function, and not for its types."""
        imports: dict[str, set[str]] = {}
        for file in Path(tapgw.__file__).parent.glob("_*.py"):
            nodes = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n,
                ast.ImportFrom) and n.level]
            imports[file.stem] = {n.module or a.name for n in nodes for a in n.names}
        self.assertGreater(sum(map(len, imports.values())), 50, "imports are found")
        while leaves := {name for name,
            imported in imports.items() if not imported & imports.keys()}:
            imports = {name: imported for name, imported in imports.items() if name not in leaves}
        self.assertEqual(sorted(imports), [], "modules in or above a cycle")

    def test_backoff(self) -> None:
        """A gateway that comes back is tried within a second."""
        waits = [_runner.backoff(n, _runner.MAX_WAIT) for n in range(200)]
        self.assertLess(max(waits), 1)
        self.assertGreaterEqual(min(waits), 0.1)

    def test_proof(self) -> None:
        """The proof of docs/protocol.md is accepted, at its address only."""
        q = _discover.Question("ptk-00112233445566778899aabbccddeeff")
        q.nonce = "000102030405060708090a0b0c0d0e0f"
        self.assertEqual(q.header(), "12c596b516c940ac 000102030405060708090a0b0c0d0e0f")
        proof = "cd5dcba9360ba567bd526f9c83ff93af7ac35f46c02cb3dc045e901b3eee22a5"
        q.check(proof + " 127.0.0.1:9400", "127.0.0.1:9400", False)
        q.check(proof + " 127.0.0.1:9400", "127.0.0.1:1", True)
        for answer in [proof + " 127.0.0.1:9400", "", "\xe9\xff \xe9", "a b",
            "0" * 64 + " 127.0.0.1:1"]:
            with self.subTest(answer=answer), self.assertRaises(ConnectionError):
                q.check(answer, "127.0.0.1:1", False)

    def test_wrong_options(self) -> None:
        """run names the fault of the options."""
        for options, want in [({"name": "a b"}, "its name"),
            ({"url": "ftp://x"}, "must begin with ws"),
                              ({"url": "ws://"}, "names no host"), ({"context": "é" * 5000},
                                  "context is over 8192"),
                              ({"instance": "x" * 300},
                                  "256 bytes"), ({"metadata": {"x": object()}}, "metadata"),
                              ({"max_calls": 0}, "max_calls")]:
            with self.subTest(options=options), self.assertRaisesRegex(ProviderError, want):
                asyncio.run(Provider(**{"name": "x", **options}).run())

    def test_token_is_secret(self) -> None:
        """No text of the package has the token."""
        e = _discover.Endpoint("ws://x", "ptk-secret", "ptk-secret")
        self.assertNotIn("secret", repr(e))

    def test_offline(self) -> None:
        """Without a session, changes hold for the next one, and pushes fail."""
        async def work() -> None:
            p = Provider("x", context="first")
            self.assertEqual(await p.set_context("second"), 0)
            self.assertEqual(p._hello()["context"], "second")
            with self.assertRaises(tapgw.NotConnectedError):
                await p.surface("x")
            with self.assertRaisesRegex(Error, "pushing: INVALID_JSON"):
                await p.push()
        asyncio.run(work())

    def test_results(self) -> None:
        """A result that can't be sent is an error that says so."""
        for value in [{1: "a", "1": "b"}, {"x": float("nan")}, object(), {"x": [object()]}]:
            with self.subTest(value=value), self.assertRaisesRegex(Error,
                "the result can't be written as JSON"):
                _calls.success(value)
        loop: list[Any] = []
        loop.append(loop)
        with self.assertRaises(Error):
            _calls.success(loop)
        self.assertEqual(_wire.encode({"type": "tool.result", "data": {1: Receipt("s")}}),
                         '{"type":"tool.result","data":{"1":{"session":"s","seq":0,"fate":"","reason":"","each":[]}}}')
        self.assertEqual(_wire.encode({"type": "x", "data": "\ud800"}),
            '{"type":"x","data":"\\ud800"}')

    def test_late_receipt(self) -> None:
        """A receipt that a busy machine delays is waited for, if the gateway is one that is likely to give it."""
        async def fate(late: float, wait: float) -> tuple[str, float]:
            async def write(m: dict[str, Any]) -> None:
                ack = {"requestId": m["requestId"], "sessionId": "s", "seq": 1, "fate": "stored"}
                asyncio.get_running_loop().call_later(late, requests.on_receipt, ack)

            link: Any = types.SimpleNamespace(bindings={"s": None}, write=write,
                next_id=lambda kind: f"{kind}-1")
            requests = _requests.Requests(link)
            requests.receipt_wait = wait
            receipt = await requests.push({"type": "push", "level": "keep"}, False)
            return receipt.fate, requests.receipt_wait

        late = 2 * _changes.ACK_WAIT
        self.assertEqual(asyncio.run(fate(late, _changes.LIKELY_WAIT)),
            ("stored", _changes.ACK_WAIT))
        self.assertEqual(asyncio.run(fate(3600, 0.01)), ("", _changes.ACK_WAIT))

    def test_discovery(self) -> None:
        """The environment comes before the files; a process with both connects only to its gateway."""
        with mock.patch.dict(os.environ, {"COPILOT_HOME": "/nowhere"}):
            for name in (_discover.ENV_URL, _discover.ENV_TOKEN):
                os.environ.pop(name, None)
            with self.assertRaisesRegex(ConnectionError, "gateway.json yet"):
                _discover.endpoints("", "", "")
            with self.assertRaisesRegex(ConnectionError, "no token"):
                _discover.endpoints("ws://x:1", "", "")
            os.environ[_discover.ENV_TOKEN] = "ptk-env"
            self.assertEqual([e.token for e in _discover.endpoints("ws://x:1", "", "")],
                ["ptk-env"])
            self.assertEqual([e.token for e in _discover.endpoints("ws://x:1", "ptk-given", "")],
                ["ptk-given"])
            os.environ[_discover.ENV_URL] = "ws://env:1"
            self.assertEqual([(e.url, e.token, e.from_user) for e in _discover.endpoints("", "",
                "")],
                             [("ws://env:1", "ptk-env", True)])


if __name__ == "__main__":
    unittest.main()
