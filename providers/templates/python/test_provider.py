"""Tests of the provider, with a stand-in for the gateway."""

import asyncio
import unittest

from gateway import TOKEN, Gateway
from provider import p


class Greet(unittest.IsolatedAsyncioTestCase):
    """The tool greet_hello."""

    async def test_greet(self) -> None:
        """It greets whom it is told to greet."""
        async with Gateway() as gateway:
            p.url, p.token = gateway.url, TOKEN
            running = asyncio.ensure_future(p.run())
            self.assertEqual(await gateway.call("greet_hello", {"name": "Ada"}), "Hello, Ada!")
            self.assertEqual(await gateway.call("greet_hello", {}), "Hello, world!")
            p.stop()
            await running
