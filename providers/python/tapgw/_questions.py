"""Questions of a session, and the answers that people give elsewhere."""

from __future__ import annotations

import asyncio
import datetime
from typing import TYPE_CHECKING, Any, Optional

from . import _requests
from ._errors import NotConnectedError
from ._model import QuestionEnd, time_of
from ._tool import call_back
from ._wire import check_json

if TYPE_CHECKING:
    from ._connection import Connection


class Question:
    """What a session asks its user, as on_question gets it.

    kind is "permission", "input" or "form"; there may be others. detail of a permission is all that will be done;
    choices and freeform are of an input, schema of a form. The texts are the model's or a tool's: show those of a
    permission whole, since the person allows all of it. end is set once the question is over.
    """

    def __init__(self, conn: "Connection", session: str, m: dict[str, Any]) -> None:
        """Make a question of an event's data. A KeyError, TypeError or AttributeError says that it is wrong."""
        self.id: str = m["id"]
        self.session = session
        self.kind: str = m["kind"]
        self.message: str = m["message"]
        self.detail: str = m.get("detail") or ""
        self.choices: tuple[str, ...] = tuple(m.get("choices") or ())
        self.freeform: bool = m.get("freeform") is True
        self.schema: Optional[dict[str, Any]] = m.get("schema")
        self.asked_at: datetime.datetime = time_of(m["askedAt"])
        self.expires_at: datetime.datetime = time_of(m["expiresAt"])
        self.end: Optional[QuestionEnd] = None
        self._conn = conn
        self._task: Optional[asyncio.Task[Any]] = None  # of on_question
        self._own: Optional[_requests.Request] = None  # the answer that on_question itself gives

    async def answer(
        self, *, decision: str = "", text: str = "", content: Optional[dict[str, Any]] = None, person: str = "",
    ) -> None:
        """Answer the question; the first answer counts, wherever it comes from.

        decision is "once", "session" or "deny" for a permission; "deny" also declines an input or a form. text answers
        an input, or says with "deny" why. content answers a form. person is who answered, for the timeline, in at most
        100 bytes. The Error has the gateway's code: INVALID_STATE if the question is over (the message says who
        answered), INVALID_JSON for an answer that it does not take. After a NotConnectedError the answer may count
        or not: if the question still waits, on_question gets it again.
        """
        what = f"answering question {self.id}"
        fields: dict[str, Any] = {"decision": decision, "text": text, "content": content, "person": person}
        message = {"type": "question.answer", "question": self.id, **{k: v for k, v in fields.items() if v or v == {}}}
        if content is not None:
            check_json(f"{what}: content", content)
        c = self._conn
        if c.closed:
            raise NotConnectedError(f"{what}: the connection that it came on has ended")
        r = _requests.Request("question.answer", {self.session})
        message["requestId"] = request = c.add_request("answer", r)
        if asyncio.current_task() is self._task:
            self._own = r
        try:
            await c.write(message)
            await r.done
        finally:
            c.requests.pop(request, None)
        if r.err is not None:
            raise r.err


def on_asked(c: "Connection", session: str, data: dict[str, Any]) -> None:
    """Run on_question for a question of a bound session, once."""
    b, fn = c.bindings.get(session), c.provider.on_question
    if b is None or b.ending or fn is None or data["id"] in b.questions:
        return
    q = Question(c, session, data)
    b.questions[q.id] = q
    q._task = c.spawn(c.run.guarded(call_back(fn, q), "on_question"))


def on_ended(c: "Connection", session: str, data: dict[str, Any]) -> None:
    """Cancel on_question for a question that is over, unless it ended by the answer that on_question itself gave."""
    b = c.bindings.get(session)
    q = b.questions.pop(data["id"], None) if b is not None else None
    if q is None or q._task is None:
        return
    q.end = QuestionEnd(data["reason"], data.get("by") or "", data.get("person") or "")
    if q._own is None or not q._own.done.done() or q._own.err is not None:
        q._task.cancel("the question is over")
