"""Answers the benchmark's calls with the SDK."""

import sys

sys.path.insert(0, "providers/python")

from tapgw import Provider  # noqa: E402

p = Provider("bench")


@p.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


p.main()
