"""Pushes, queries and answers to questions, and the gateway's answers to them."""

from __future__ import annotations

import asyncio
from typing import Any, Optional

from ._changes import ACK_WAIT
from ._errors import INVALID_SESSION, RATE_LIMITED, Error, NotConnectedError
from ._link import Link
from ._model import Entry, Receipt, time_of


_WHAT = {"push": "pushing", "stream.query": "querying", "question.answer": "answering a question"}


class Request:
    """A push, a query or an answer that waits for the gateway, for each session in due; "" stands for any."""

    def __init__(self, kind: str, due: set[str], until_delivered: bool = False) -> None:
        """Make a request."""
        self.kind = kind
        self.due = due
        self.until_delivered = until_delivered
        self.receipts: list[Receipt] = []
        self.streams: dict[str, Any] = {}
        self.err: Optional[Exception] = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(self, session: str) -> None:
        """Note that a session has answered; "" stands for all."""
        if len(self.due) <= 1 or not session:
            self.due.clear()
        self.due.discard(session)
        if not self.due:
            self.end()

    def end(self) -> None:
        """Stop waiting."""
        if not self.done.done():
            self.done.set_result(None)


class Requests:
    """The requests of one connection that wait for the gateway."""

    def __init__(self, link: Link) -> None:
        """Make the requests of a connection."""
        self.link = link
        self.waiting: dict[str, Request] = {}
        self.gives_receipts = False
        self.receipt_wait = ACK_WAIT  # of a push, while it is not known whether the gateway gives receipts
        self.querying = asyncio.Lock()

    async def ask(self, m: dict[str, Any], r: Request, key: str = "requestId") -> None:
        """Send a request with an id, wait for its answers, and raise the error that is one of them."""
        m[key] = request = self.link.next_id(r.kind.rpartition(".")[2])
        self.waiting[request] = r
        is_silent = False
        try:
            await self.link.write(m)
            if r.kind == "push" and not self.gives_receipts:
                await asyncio.wait({r.done}, timeout=self.receipt_wait)
                self.receipt_wait = ACK_WAIT  # after a silence the next ones are silent, too
                is_silent = not self.gives_receipts
            if not is_silent:
                await r.done
        finally:
            self.waiting.pop(request, None)
        if r.err is not None:
            raise r.err

    async def push(self, m: dict[str, Any], until_delivered: bool) -> Receipt:
        """Send a push and wait for the receipts. Error.receipt has those of a broadcast that only some sessions got."""
        session, broadcast = m.get("sessionId", ""), bool(m.get("broadcast"))
        due = {session} if session else set(self.link.bindings)
        if not broadcast and len(due) != 1 or broadcast and not due:
            if broadcast and (m["level"] != "keep" or m.get("prompt")):
                raise NotConnectedError("pushing: not bound to a session")
            due = {""}  # one answer comes: that the gateway keeps it for the next session, or which field is missing
        r = Request("push", due, until_delivered)
        await self.ask(m, r)
        if broadcast:
            return Receipt(each=tuple(r.receipts))
        return r.receipts[0] if r.receipts else Receipt()

    def on_receipt(self, m: dict[str, Any]) -> None:
        """Give a receipt to the push that it is about."""
        self.gives_receipts = True
        r = self.waiting.get(m["requestId"])
        if r is not None and r.kind == "question.answer":
            r.answered("")
        if r is None or r.kind != "push" or r.done.done():
            return
        fate = m.get("fate", "")
        if r.until_delivered and fate == "queued":
            return
        r.receipts.append(Receipt(m["sessionId"], m.get("seq", 0), fate, m.get("reason", "")))
        r.answered(m["sessionId"])

    async def query(self, m: dict[str, Any]) -> list[Entry]:
        """Read streams. There is one query at a time, because errors of older gateways do not name their query."""
        async with self.querying:
            if self.link.closed:
                raise NotConnectedError("querying: not bound to a session")
            r = Request("stream.query", {m.get("sessionId", "")})
            await self.ask(m, r, "queryId")
        return _entries(r.streams)

    def on_history(self, m: dict[str, Any]) -> None:
        """Give an answer to the query that it is about."""
        r = self.waiting.get(m["queryId"])
        if r is not None and r.kind == "stream.query":
            r.streams = m["streams"]
            r.answered("")

    def refuse(self, m: dict[str, Any], err: Error) -> bool:
        """Give an error to the request that it is about, and report whether there is one.

        An error without a request id is about the only request of its type, if there is only one.
        """
        request = m.get("requestId", "")
        r = self.waiting.get(request)
        if r is None and not request:
            same = [x for x in self.waiting.values() if x.kind == m.get("replyTo")]
            r = same[0] if len(same) == 1 else None
        if r is None or r.done.done():
            return False
        err.retryable = err.code == RATE_LIMITED
        err.what = _WHAT[r.kind]
        r.err = r.err or err
        session = m.get("sessionId", "")
        r.answered(session if session in r.due else "")
        return True

    def end_session(self, session: str) -> None:
        """End the requests that wait for the answer of a session that has ended."""
        for r in list(self.waiting.values()):
            if session in r.due:
                r.err = r.err or Error(INVALID_SESSION, f'session "{session}" has ended',
                    what=_WHAT[r.kind])
                r.answered(session)

    def end(self) -> None:
        """End the requests of a connection that has ended."""
        for r in list(self.waiting.values()):
            if not r.done.done():
                r.err = NotConnectedError("not bound to a session any more: the connection ended before the gateway "
                                          "answered")
                r.end()


def _entries(streams: dict[str, Any]) -> list[Entry]:
    found = []
    for key, entries in streams.items():
        stream, _, provider = key.partition("@")
        for e in entries:
            try:
                found.append(Entry(stream, provider, time_of(e["ts"]), e["event"], e["level"],
                    e.get("metadata"),
                                   e.get("prompt") or ""))
            except (ValueError, KeyError, TypeError, AttributeError) as err:
                raise ValueError(f"querying: the gateway's answer: {err!r}") from None
    # Each list is sorted; events of one stream with the same time keep their order.
    found.sort(key=lambda e: e.stream)
    found.sort(key=lambda e: e.time, reverse=True)
    return found
