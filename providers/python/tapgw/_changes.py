"""Sending the changes of the offer, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from ._errors import RATE_LIMITED, Error
from ._offer import Change

if TYPE_CHECKING:
    from ._connection import Connection

FIRST_RETRY = 1.0
ANSWER_TIMEOUT = 10.0
LIKELY_WAIT = 5.0  # for a receipt of a gateway that gives them, unless it is one that does not know them
ACK_WAIT = 0.25  # for an answer that may not come: gateways of the core profile answer only if they refuse


@dataclass
class SentChange:
    """The change that the gateway has got and not answered yet."""

    change: Change
    id: str
    type: str
    due: set[str] = field(default_factory=set)  # the sessions whose confirmation is missing
    revision: int = 0


def send_changes(c: "Connection") -> None:
    """Send the queued changes, one at a time."""
    offers = c.provider._offers
    while c.state == "bound" and c.sent is None and not c.paused and not c.closed:
        change = next((x for x in offers.queue if not is_obsolete(c, x)), None)
        if change is None:
            offers.queue.clear()
            return
        del offers.queue[:offers.queue.index(change) + 1]
        if change.then:
            change.then()
            continue
        c.update_count += 1
        request = f"update-{c.update_count}"
        try:
            offers.sent, message = offers.attempt(change, request)
        except (Error, ValueError) as err:
            finish_change(c, err, change)
            continue
        c.sent = SentChange(change, request, message["type"],
                            {change.session} if change.session else set(c.bindings))
        c.send(message)
        if not c.sent.due:
            finish_change(c, None, change)  # no session is bound, so there is no answer
        elif c.confirms_updates:
            c.answer_timer.start(ANSWER_TIMEOUT)
        else:
            c.silence_timer.start(ACK_WAIT)


def is_obsolete(c: "Connection", change: Change) -> bool:
    """Report whether a change restores something in a session that has ended."""
    if change.future is not None or not change.session:
        return False
    b = c.bindings.get(change.session)
    return b is None or b.ending


def silence(c: "Connection") -> None:
    """End a change that a gateway of the core profile did not refuse."""
    if c.sent is not None:
        finish_change(c, None, c.sent.change)
    send_changes(c)


def confirm(c: "Connection", m: dict[str, Any]) -> None:
    """Note that the gateway has confirmed the sent change in a session."""
    sent, offers = c.sent, c.provider._offers
    assert sent is not None
    if offers.sent is not None:  # later messages of the gateway are based on it
        offers.offer, offers.sent = offers.sent, None
    sent.revision = max(sent.revision, m.get("revision", 0))
    sent.due.discard(m["sessionId"])
    if not sent.due or not m["sessionId"]:
        finish_change(c, None, sent.change)
        send_changes(c)


def finish_change(c: "Connection", err: Optional[Exception], change: Change) -> None:
    """End a change: the gateway has confirmed it, or err says why it was refused."""
    c.answer_timer.stop()
    c.silence_timer.stop()
    revision = c.sent.revision if c.sent else 0
    c.sent = None
    offers = c.provider._offers
    if offers.sent is not None and err is None:
        offers.offer = offers.sent
    offers.sent = None
    if isinstance(err, Error) and err.code == RATE_LIMITED:
        if change.future is None or not change.future.done():
            offers.queue.insert(0, change)  # the gateway accepts it a second later
        c.paused = True
        c.retry_timer.start(FIRST_RETRY)
        return
    left = change.finish(revision, err)
    if left is not None and not is_obsolete(c, change):
        c.report_refusal(left)


def is_about_sent(c: "Connection", m: dict[str, Any]) -> bool:
    """Report whether an error is about the sent change. Gateways of the core profile send no request ids."""
    sent = c.sent
    if sent is None:
        return False
    request = m.get("requestId", "")
    return request == sent.id or not request and m.get("replyTo") == sent.type


def end_session(c: "Connection", session: str) -> None:
    """End the change that waits for the answer of a session that has ended."""
    if c.sent is not None and session in c.sent.due:
        c.sent.due.discard(session)
        if not c.sent.due:
            finish_change(c, None, c.sent.change)


def unlink(c: "Connection") -> None:
    """Stop sending changes: what is queued or not confirmed is part of the next hello."""
    offers, sent = c.provider._offers, c.sent
    c.paused, c.sent = False, None
    if offers.conn is not c:
        return
    offers.conn = None
    if offers.sent is not None:
        offers.offer, offers.sent = offers.sent, None
    if sent is not None:
        c.answer_timer.stop()
        c.silence_timer.stop()
        sent.change.finish(sent.revision, None)
    queue, offers.queue = offers.queue, []
    for change in queue:
        err = offers.apply_offline(change)
        if err is not None:
            c.report_refusal(err)
