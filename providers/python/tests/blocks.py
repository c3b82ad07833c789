"""Runs the blocks of Python in a document, in order, against a gateway: blocks.py FILE.

A block that makes a provider is run until that is bound; the blocks after it use the provider while it runs. The
environment has the gateway's URL, the provider's token, and others: INTERNAL_TOKEN, QUESTIONS_TOKEN.
"""

import ast
import asyncio
import inspect
import json
import os
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).parent.parent))

import tapgw  # noqa: E402
import tapgw._provider  # noqa: E402

BLOCK = re.compile(r"(?ms)^(?:<!-- (not run|token): ([^\n]*) -->\n)?```python\n(.*?)^```$")
made: list["Documented"] = []
problems: list[Exception] = []
variable = "TAP_PROVIDER_TOKEN"  # the variable that has the provider's token


class Documented(tapgw._provider.Provider):
    """A provider that a block makes."""

    def __init__(self, name: str, **options: Any) -> None:
        token = os.environ[variable]
        super().__init__(name, token=token, on_error=problems.append, **options)
        made.append(self)

    def main(self) -> None:
        """Return at once: the runner runs it."""


def code(prompt: str) -> str:
    """Return the code of the pairing that waits, as a person types it."""
    url = "http" + os.environ["TAP_GATEWAY_URL"][len("ws"):] + "/api/v1/pairings"
    request = urllib.request.Request(url,
        headers={"Authorization": "Bearer " + os.environ["INTERNAL_TOKEN"]})
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)[0]["code"])


async def main(file: str) -> None:
    """Run all blocks."""
    global variable
    tapgw.Provider = Documented  # type: ignore[misc]
    names: dict[str, Any] = {"__name__": "docs", "input": code}
    task: Optional[asyncio.Task[None]] = None
    count = 0
    for block in BLOCK.finditer(Path(file).read_text()):
        variable, body = f"{block[2].upper()}_TOKEN" if block[1] == "token" else "TAP_PROVIDER_TOKEN", block[3]
        if block[1] == "not run":
            compile(body, file, "exec")
            continue
        count += 1
        made.clear()
        value = eval(compile(body, f"block {count}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT),
            names)
        if inspect.iscoroutine(value):
            await value
        for p in made:
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
            task = asyncio.ensure_future(p.run())
            while p._conn is None:
                assert not task.done(), f"block {count}: the provider ended: {task}, want it connected"
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        print(f"block {count} ran", flush=True)
    assert task is not None, f"{count} blocks made no provider, want at least one"
    task.cancel()
    await asyncio.wait({task})
    assert not problems, f"got {problems}, want no problem"
    print(f"{count} blocks")


asyncio.run(main(sys.argv[1]))
