"""Binding to sessions, and leaving them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Optional

from ._calls import Calls
from ._changes import ACK_WAIT, FIRST_RETRY, LIKELY_WAIT, Changes
from ._errors import (
    AUTH_FAILED, INVALID_JSON, INVALID_SESSION, INVALID_STATE, PAYLOAD_TOO_LARGE, UNAUTHORIZED, UNKNOWN_CALL_ID,
    UNSUPPORTED_VERSION, Error, NotPairedError, ProviderError, RefusedError,
)
from ._link import Bound, Link
from ._model import ALL_SESSIONS, EVENTS, Binding, Session, SessionEvent, read_event
from ._offer import Change
from ._questions import Questions
from ._requests import Requests
from ._run import Sequencer
from ._tool import call_back

MAX_RETRY = 15.0  # before a refused hello is sent again; a gateway accepts ten a minute
DEADLINE = 10.0  # of a session that ends, if the gateway names no deadline


@dataclass(eq=False)
class Joining:
    """A session that a provider of all sessions is about to join.

    prepare_session runs, the provider sends session.ready, and the gateway answers with the state started. The hello
    asks for the sessions that exist then.
    """

    session: str
    task: Optional[asyncio.Task[Any]] = None  # of prepare_session
    ready: bool = False  # prepare_session has returned
    asked: bool = False  # session.ready, or hello, was sent
    binding: Optional[Bound] = None  # once the gateway has answered


_OUTDATED = frozenset({
    "shutdown.ready", "tool.progress", "tool.result", "gate.result", "transform.result", "session.ready",
    "tools.update", "hooks.update", "context.update", "filter.set",
})


def not_paired(why: str) -> ProviderError:
    """Return the error that ends the run of a paired provider: NotPairedError is its cause."""
    err = ProviderError(why)
    err.__cause__ = NotPairedError(why)
    return err


class Sessions:
    """The sessions that the gateway has, and the bindings of one connection to them."""

    def __init__(self, link: Link, calls: Calls, changes: Changes, requests: Requests) -> None:
        """Make the sessions of a connection, of which the others are parts."""
        self.link, self.calls, self.changes, self.requests = link, calls, changes, requests
        self.questions = Questions(link, requests)
        self.run, self.provider, self.offers = link.run, link.provider, link.provider._offers
        self.active: list[Session] = []
        self.ended: set[str] = set()  # sessions that have ended and are still in the list
        self.unbindable: set[str] = set()  # sessions of the list that the gateway refused to bind
        self.joining: dict[str, Joining] = {}
        self.said_waiting = False
        self.retry_in = FIRST_RETRY

    def offer_changed(self) -> None:
        """Send the gateway the changes of the offer since the last one sent."""
        if self.link.state == "hello":
            self.bind()  # a hello that was refused may be accepted now
        elif self.link.state == "bound":
            if self.provider.is_for_all:
                self.join()  # a session.ready that was refused may be accepted now
            self.changes.send()

    def on_sessions(self, m: dict[str, Any], greeting: bool) -> None:
        """Store a new list of sessions, and bind to one of them if it is time to. greeting: it answers auth."""
        if self.link.state == "auth":
            if not greeting:
                return
            self.link.answer_timer.stop()
            self.link.state = "hello"
            self.link.authenticated_at = asyncio.get_running_loop().time()
            self.run.accepted()
        before = self.active
        self.active = [
            Session(s["id"], str(s.get("label") or ""), str(s.get("cwd") or ""),
                s.get("foreground") is True)
            for s in m["active"] if isinstance(s, dict) and isinstance(s.get("id"), str)
        ]
        self.unbindable.clear()
        ids = {s.id for s in self.active}
        self.ended &= ids
        for s in before:
            if s.id not in ids:
                self.run.prepared.discard(s.id)
                self.offers.forget_session(s.id)
        for name, b in list(self.link.bindings.items()):
            if name not in ids and not b.ending:  # it has ended without a warning
                if b.task is not None:
                    b.task.cancel("session ended")
                self.calls.cancel(name, "session ended")
                self.end_binding(b)
        if self.provider.is_for_all:
            if self.link.state == "bound":
                self.join()
            elif self.link.state == "ack":
                self.prepare()
        self.changes.send()
        self.bind()

    def find(self, session: str) -> Optional[Session]:
        """Return a session of the list."""
        return next((s for s in self.active if s.id == session), None)

    def pick(self) -> str:
        """Choose the session to bind to; "" if no session is for this provider."""
        p = self.provider
        if self.ended:
            return ""  # it is still in the list; another list follows
        if p.is_for_all:
            return ALL_SESSIONS if self.active and ALL_SESSIONS not in self.unbindable and self.prepare() else ""
        chosen = ""
        if p.session:
            chosen = p.session
        elif p.pick_session is not None:
            try:
                chosen = p.pick_session(list(self.active)) or ""
            except Exception as err:
                self.link.log.error("pick_session failed", exc_info=err)
        elif self.find(self.run.session) and self.run.session not in self.unbindable:
            chosen = self.run.session
        else:
            # A session without a directory is one that this provider may not bind to. The first one
            # is tried anyway.
            return next((s.id for i, s in enumerate(self.active)
                         if s.id not in self.unbindable and (i == 0 or s.cwd)), "")
        return chosen if chosen not in self.unbindable and self.find(chosen) else ""

    def bind(self) -> None:
        """Send hello if the state allows it and there is a session."""
        if self.link.state != "hello":
            return
        self.link.retry_timer.stop()
        session = self.pick()
        if not session:
            if not self.said_waiting and not self.joining:
                self.said_waiting = True
                self.link.log.info("connected; waiting for a session")
            return
        hello = self.provider._hello()
        hello["session"] = session
        if self.link.restoring:
            hello["reconnectToken"] = self.link.restoring
        self.offers.wake = self.link.wake
        self.link.hello_session, self.link.state = session, "ack"
        for j in self.joining.values():
            j.asked = True  # this hello asks for all
        self.link.expect_answer()
        try:
            self.link.send(hello)
        except Error as err:
            raise ProviderError(str(err)) from err

    def on_hello_ack(self, m: dict[str, Any]) -> None:
        """Begin a binding, or the bindings to all sessions."""
        if self.link.state != "ack":
            return
        self.link.answer_timer.stop()
        self.link.state, self.retry_in, self.link.restoring, self.said_waiting = "bound", FIRST_RETRY, "", False
        self.link.provider_id, self.link.persist_dir = m["providerId"], m.get("persistDir", "")
        token = m.get("reconnectToken", "")
        self.changes.confirms_updates = bool(token)  # gateways of the core profile send no token, and answer no updates
        self.requests.receipt_wait = LIKELY_WAIT if token else ACK_WAIT
        self.run.remember(token, self.link.to)
        if self.provider.is_for_all:
            self.link.open = True
            self.link.log.info("bound to all sessions as %s", self.link.provider_id)
            self.join()
        else:
            self.run.session = self.link.hello_session
            self.open_binding(self.new_binding(self.link.hello_session))
        self.changes.send()

    def new_binding(self, session: str) -> Bound:
        """Make the binding to a session that the provider has joined."""
        s = self.find(session)
        b = Bound(Binding(session, s.cwd if s else "", self.link.provider_id,
            self.link.persist_dir))
        self.link.bindings[session] = b
        return b

    def open_binding(self, b: Bound) -> None:
        """Send the parts that the hello could not contain, such as filters, and then start the binding."""
        offers = self.offers
        offers.queue[:0] = [*offers.session_changes(b.info.session),
            Change(then=lambda: self.start_binding(b))]

    def start_binding(self, b: Bound) -> None:
        """Run on_bound."""
        if b.started:
            return
        b.started = True
        self.link.open = True
        self.link.log.info("bound to session %s as %s", b.info.session, b.info.provider_id)
        if self.provider.on_bound is not None:
            b.task = self.link.spawn(self.run.guarded(call_back(self.provider.on_bound, b.info),
                "on_bound"))

    def on_error(self, m: dict[str, Any]) -> None:
        """Handle an error message."""
        code, about = m["code"], m.get("replyTo", "")
        err = Error(code, m["message"])
        if code == AUTH_FAILED:
            if self.link.state == "auth":
                raise RefusedError(f"{self.link.to.url}: the gateway refused the token: {m['message']}")
            raise err
        if code == UNSUPPORTED_VERSION:
            raise ProviderError(f"the gateway speaks another version: {err}")
        if self.link.state == "ack" and about in ("hello", ""):
            self.on_hello_error(code, err)
            return
        if self.changes.refuse(m, err) or self.requests.refuse(m, err):
            return
        if about == "session.ready":  # it is sent again when the offer or the list of sessions has changed
            for name, j in self.joining.items():
                if j.binding is None and m.get("sessionId", "") in (name, ""):
                    j.asked = False
        if about in _OUTDATED and code in (INVALID_STATE, INVALID_SESSION, UNKNOWN_CALL_ID):
            self.link.log.debug("the gateway refused %s: %s", about, err)  # it was about something that had just ended
            return
        self.link.report_refusal(err)

    def on_hello_error(self, code: str, err: Error) -> None:
        """Choose after a refused hello: give up, try another session, or try again later."""
        self.link.answer_timer.stop()
        self.link.state = "hello"
        self.changes.unlink()
        err.what = f"binding to session {self.link.hello_session}"
        if code in (INVALID_JSON, PAYLOAD_TOO_LARGE, UNAUTHORIZED):
            raise ProviderError(str(err)) from err
        if code == INVALID_SESSION:
            if self.link.to.paired:
                raise not_paired(str(err))
            # It has ended or is not open to this provider. A new list comes when anything changes,
            # and clears this.
            self.unbindable.add(self.link.hello_session)
            self.link.log.info("session not bound: %s", err)
            self.bind()
            return
        self.link.report_refusal(err)
        self.link.retry_timer.start(self.retry_in, self.offer_changed)
        self.retry_in = min(2 * self.retry_in, MAX_RETRY)

    def on_lifecycle(self, m: dict[str, Any]) -> None:
        """Handle a change of a bound session's state."""
        if self.link.state != "bound":
            return
        session, state = m["sessionId"], m["state"]
        b = self.link.bindings.get(session)
        if b is None and state == "started" and self.provider.is_for_all:
            b = self.joined(session)
        if b is None or b.ending:
            return
        if state == "shutdown.pending":
            deadline = m.get("deadline", 0) / 1000
            self.begin_ending(b, deadline if deadline > 0 else DEADLINE)
        elif self.provider.on_session is not None:
            self.run.callback(self.provider.on_session, SessionEvent(session, state))

    def begin_ending(self, b: Bound, deadline: float) -> None:
        """Cancel everything that runs for a session that is about to end, and clean up."""
        session = b.info.session
        self.link.log.info("session %s is ending", session)
        b.ending = b.started = True
        self.ended.add(session)
        if not self.provider.is_for_all:
            self.link.state = "ending"
            self.changes.unlink()
        if b.task is not None:
            b.task.cancel("session ended")
        j = self.joining.pop(session, None)
        if j is not None and j.task is not None:
            j.task.cancel()
        waits: list[asyncio.Future[Any]] = [*self.calls.cancel(session, "session ended")]
        if b.task is not None:
            waits.append(b.task)
        if self.provider.on_session is not None:
            event = SessionEvent(session, "shutdown.pending", deadline)
            waits.append(self.run.callback(self.provider.on_session, event, timeout=deadline))

        async def clean_up() -> None:
            if waits:
                await asyncio.wait(waits, timeout=deadline)
            self.link.step(self.finish_ending, b)

        if waits:
            self.link.spawn(clean_up())
        else:
            self.finish_ending(b)

    def finish_ending(self, b: Bound) -> None:
        """Tell the gateway that the session may end, and look for another."""
        self.link.send({"type": "shutdown.ready", "sessionId": b.info.session})
        self.end_binding(b)
        self.bind()

    def end_binding(self, b: Bound) -> None:
        """Remove a binding whose session has ended. A pairing is for one session, so its run ends."""
        session = b.info.session
        self.link.bindings.pop(session, None)
        self.requests.end_session(session)
        self.changes.end_session(session)
        self.questions.end_session(session)
        if self.provider.is_for_all:
            self.changes.send()
            return
        self.changes.unlink()
        self.link.open = False
        self.run.session = ""
        self.run.remember("", self.link.to)
        self.link.state = "hello"
        if self.link.to.paired:
            raise not_paired(f"session {session} has ended")

    def prepare(self) -> bool:
        """Start prepare_session for the sessions that need it, and report whether it has returned for all of them."""
        for name, j in list(self.joining.items()):
            if not self.find(name):
                if j.task is not None:
                    j.task.cancel()
                del self.joining[name]
        done = True
        for s in self.active:
            j2 = self.joining.get(s.id)
            if s.id in self.link.bindings and j2 is None or s.id in self.ended:
                continue
            done = (j2 or self.prepare_one(s)).ready and done
        return done

    def prepare_one(self, s: Session) -> Joining:
        """Start prepare_session for a session, once."""
        self.joining[s.id] = j = Joining(s.id)
        prepare_session = self.provider.prepare_session
        if prepare_session is None or s.id in self.run.prepared:
            j.ready = True
            return j

        async def work() -> None:
            await self.run.guarded(call_back(prepare_session, s), "prepare_session")
            self.link.step(self.prepared, j)

        j.task = self.link.spawn(work())
        return j

    def prepared(self, j: Joining) -> None:
        """Join a session after prepare_session has returned."""
        if self.joining.get(j.session) is not j:
            return  # the session has ended
        j.ready = True
        self.run.prepared.add(j.session)
        if self.link.state == "bound":
            self.join()
            self.changes.send()
        self.bind()

    def join(self) -> None:
        """Send session.ready for the sessions that are prepared, and open the bindings that are confirmed."""
        self.prepare()
        for s in self.active:  # in the order of the list
            j = self.joining.get(s.id)
            if j is None or not j.ready:
                continue
            if j.binding is not None:
                del self.joining[s.id]
                self.open_binding(j.binding)
            elif not j.asked:
                j.asked = True
                self.link.send({"type": "session.ready", "sessionId": s.id})

    def joined(self, session: str) -> Optional[Bound]:
        """Make the binding to a session after the gateway has joined both."""
        s = self.find(session)
        if s is None:
            return None
        j = self.joining.get(session) or self.prepare_one(s)  # it may have started after the hello was sent
        j.asked = True
        j.binding = b = self.new_binding(session)
        self.join()
        self.changes.send()
        return b

    def on_event(self, m: dict[str, Any]) -> None:
        """Give an event to its listeners, in order for each session."""
        name, session = m["event"], m["sessionId"]
        listeners = [fn for kind, fn in self.provider._listeners if EVENTS[kind] == name]
        b = self.link.bindings.get(session)
        try:
            if name == "question.asked" and b is not None:
                self.questions.on_asked(b, m["data"])
            elif name == "question.ended" and b is not None:
                self.questions.on_ended(m["data"])
            if not listeners:
                return
            event = read_event(session, name, m["data"])
        except (KeyError, TypeError, AttributeError) as err:
            self.link.log.warning("ignoring a wrong event %s of the gateway: %r", name, err)
            return
        for fn in listeners:
            def work(fn: Any = fn) -> Any:
                return self.run.guarded(call_back(fn, event), "listener")
            if not self.run.events.add(session, work):
                why = f"{name} of session {session} was dropped: {Sequencer.MAX} events wait for the listeners"
                self.link.report_refusal(RuntimeError(why))
