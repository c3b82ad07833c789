"""Sending the changes of the offer, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ._errors import RATE_LIMITED, Error
from ._link import Link
from ._offer import Change

FIRST_RETRY = 1.0  # before something that was refused for now is sent again
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


class Changes:
    """The changes of the offer on one connection."""

    def __init__(self, link: Link) -> None:
        """Make the changes of a connection."""
        self.link = link
        self.offers = link.provider._offers
        self.sent: Optional[SentChange] = None
        self.confirms_updates = False  # gateways of the core profile answer no updates
        self.paused = False  # a change was RATE_LIMITED

    def send(self) -> None:
        """Send the queued changes, one at a time."""
        offers = self.offers
        while self.link.state == "bound" and self.sent is None and not self.paused and not self.link.closed:
            change = next((x for x in offers.queue if not self.is_obsolete(x)), None)
            if change is None:
                offers.queue.clear()
                return
            del offers.queue[:offers.queue.index(change) + 1]
            if change.then:
                change.then()
                continue
            request = self.link.next_id("update")
            try:
                offers.sent, message = offers.attempt(change, request)
            except (Error, ValueError) as err:
                self.finish(err, change)
                continue
            self.sent = SentChange(change, request, message["type"],
                                   {change.session} if change.session else set(self.link.bindings))
            self.link.send(message)
            if not self.sent.due:
                self.finish(None, change)  # no session is bound, so there is no answer
            elif self.confirms_updates:
                self.link.expect_answer()
            else:
                self.link.silence_timer.start(ACK_WAIT, self._silence)

    def is_obsolete(self, change: Change) -> bool:
        """Report whether a change restores something in a session that has ended."""
        if change.future is not None or not change.session:
            return False
        b = self.link.bindings.get(change.session)
        return b is None or b.ending

    def _silence(self) -> None:
        if self.sent is not None:
            self.finish(None, self.sent.change)  # a gateway of the core profile did not refuse it
        self.send()

    def _resume(self) -> None:
        self.paused = False
        self.link.offer_changed()

    def confirm(self, m: dict[str, Any]) -> bool:
        """Note that a session has the sent change. It returns False if the ack is about another message."""
        sent, offers = self.sent, self.offers
        if sent is None or sent.id != m["requestId"]:
            return False
        if offers.sent is not None:  # later messages of the gateway are based on it
            offers.offer, offers.sent = offers.sent, None
        sent.revision = max(sent.revision, m.get("revision", 0))
        sent.due.discard(m["sessionId"])
        if not sent.due or not m["sessionId"]:
            self.finish(None, sent.change)
            self.send()
        return True

    def finish(self, err: Optional[Exception], change: Change) -> None:
        """End a change: the gateway has confirmed it, or err says why it was refused."""
        self.link.answer_timer.stop()
        self.link.silence_timer.stop()
        revision = self.sent.revision if self.sent else 0
        self.sent = None
        offers = self.offers
        if offers.sent is not None and err is None:
            offers.offer = offers.sent
        offers.sent = None
        if isinstance(err, Error) and err.code == RATE_LIMITED:
            if change.future is None or not change.future.done():
                offers.queue.insert(0, change)  # the gateway accepts it a second later
            self.paused = True
            self.link.retry_timer.start(FIRST_RETRY, self._resume)
            return
        left = change.finish(revision, err)
        if left is not None and not self.is_obsolete(change):
            self.link.report_refusal(left)

    def refuse(self, m: dict[str, Any], err: Error) -> bool:
        """End the sent change if an error is about it. Gateways of the core profile send no request ids."""
        sent, request = self.sent, m.get("requestId", "")
        if sent is None or request != sent.id and (request or m.get("replyTo") != sent.type):
            return False
        self.finish(err, sent.change)
        self.send()
        return True

    def end_session(self, session: str) -> None:
        """End the change that waits for the answer of a session that has ended."""
        if self.sent is not None and session in self.sent.due:
            self.sent.due.discard(session)
            if not self.sent.due:
                self.finish(None, self.sent.change)

    def unlink(self) -> None:
        """Stop sending changes: those that are queued or not confirmed are part of the next hello."""
        offers, sent = self.offers, self.sent
        self.paused, self.sent = False, None
        if offers.wake != self.link.wake:
            return
        offers.wake = None
        if offers.sent is not None:
            offers.offer, offers.sent = offers.sent, None
        if sent is not None:
            self.link.answer_timer.stop()
            self.link.silence_timer.stop()
            sent.change.finish(sent.revision, None)
        queue, offers.queue = offers.queue, []
        for change in queue:
            err = offers.apply_offline(change)
            if err is not None:
                self.link.report_refusal(err)
