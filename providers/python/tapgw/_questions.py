"""Questions of a session, and the answers that people give elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Optional

from ._errors import NotConnectedError
from ._link import Bound, Link
from ._model import Question, QuestionEnd
from ._requests import Request, Requests
from ._tool import call_back


@dataclass(eq=False)
class Waiting:
    """A question that waits for an answer."""

    question: Question
    task: Optional[asyncio.Task[Any]] = None  # of on_question
    own: Optional[Request] = None  # the answer that on_question itself gives


class Questions:
    """The questions of one connection that wait for an answer."""

    def __init__(self, link: Link, requests: Requests) -> None:
        """Make the questions of a connection."""
        self.link, self.requests = link, requests
        self.waiting: dict[str, Waiting] = {}  # by id

    def on_asked(self, b: Bound, data: dict[str, Any]) -> None:
        """Run on_question for a question of a bound session, once."""
        fn = self.link.provider.on_question
        if b.ending or fn is None or data["id"] in self.waiting:
            return
        q = Question(b.info.session, data, self._answer)
        self.waiting[q.id] = waiting = Waiting(q)
        waiting.task = self.link.spawn(self.link.run.guarded(call_back(fn, q), "on_question"))

    def on_ended(self, data: dict[str, Any]) -> None:
        """Cancel on_question for a question that is over, unless it ended by an answer that on_question itself gave."""
        waiting = self.waiting.pop(data["id"], None)
        if waiting is None or waiting.task is None:
            return
        waiting.question.end = QuestionEnd(data["reason"], data.get("by") or "", data.get("person")
            or "")
        own = waiting.own
        if own is None or not own.done.done() or own.err is not None:
            waiting.task.cancel("the question is over")

    def end_session(self, session: str) -> None:
        """Forget the questions of a session that has ended."""
        for id in [id for id, waiting in self.waiting.items() if waiting.question.session == session]:
            del self.waiting[id]

    async def _answer(self, q: Question, message: dict[str, Any]) -> None:
        if self.link.closed:
            raise NotConnectedError(f"answering question {q.id}: the connection that it came on has ended")
        r = Request("question.answer", {q.session})
        waiting = self.waiting.get(q.id)
        if waiting is not None and asyncio.current_task() is waiting.task:
            waiting.own = r
        await self.requests.ask(message, r)
