"""Binding to sessions, and leaving them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from . import _calls, _changes, _questions, _requests
from ._errors import (
    AUTH_FAILED, INVALID_JSON, INVALID_SESSION, INVALID_STATE, PAYLOAD_TOO_LARGE, UNAUTHORIZED, UNKNOWN_CALL_ID,
    UNSUPPORTED_VERSION, Error, NotPairedError, ProviderError, RefusedError,
)
from ._model import ALL_SESSIONS, EVENTS, Binding, Session, SessionEvent, read_event
from ._offer import Change
from ._tool import call_back

if TYPE_CHECKING:
    from ._connection import Connection

FIRST_RETRY, MAX_RETRY = 1.0, 15.0  # seconds before a refused hello is sent again; a gateway accepts ten a minute
DEADLINE = 10.0  # of a session that ends, if the gateway names none


@dataclass(eq=False)
class Bound:
    """A joined session, until its end."""

    info: Binding
    ending: bool = False
    started: bool = False  # on_bound was started, or will never be
    task: Optional[asyncio.Task[Any]] = None  # of on_bound
    questions: dict[str, _questions.Question] = field(default_factory=dict)  # that wait, by id


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
    binding: Optional[Bound] = field(default=None)  # once the gateway has answered


def on_sessions(c: "Connection", m: dict[str, Any], greeting: bool) -> None:
    """Store a new list of sessions, and bind to one of them if it is time to. greeting: it answers auth."""
    if c.state == "auth":
        if not greeting:
            return
        c.answer_timer.stop()
        c.state = "hello"
        c.authenticated_at = asyncio.get_running_loop().time()
        c.run.accepted()
    before = c.active
    c.active = [
        Session(s["id"], str(s.get("label") or ""), str(s.get("cwd") or ""), s.get("foreground") is True)
        for s in m["active"] if isinstance(s, dict) and isinstance(s.get("id"), str)
    ]
    c.unbindable.clear()
    ids = {s.id for s in c.active}
    c.ended &= ids
    for s in before:
        if s.id not in ids:
            c.run.prepared.discard(s.id)
            c.provider._offers.forget_session(s.id)
    for name, b in list(c.bindings.items()):
        if name not in ids and not b.ending:  # it has ended without a warning
            if b.task is not None:
                b.task.cancel("session ended")
            _calls.cancel_calls(c, name, "session ended")
            end_binding(c, b)
    if c.provider.is_for_all:
        if c.state == "bound":
            join(c)
        elif c.state == "ack":
            prepare(c)
    _changes.send_changes(c)
    bind(c)


def find(c: "Connection", session: str) -> Optional[Session]:
    """Return a session of the list."""
    return next((s for s in c.active if s.id == session), None)


def pick(c: "Connection") -> str:
    """Choose the session to bind to; "" if there is none for this provider."""
    p = c.provider
    if c.ended:
        return ""  # it is still in the list; another list follows
    if p.is_for_all:
        return ALL_SESSIONS if c.active and ALL_SESSIONS not in c.unbindable and prepare(c) else ""
    chosen = ""
    if p.session:
        chosen = p.session
    elif p.pick_session is not None:
        try:
            chosen = p.pick_session(list(c.active)) or ""
        except Exception as err:
            c.log.error("pick_session failed", exc_info=err)
    elif find(c, c.run.session) and c.run.session not in c.unbindable:
        chosen = c.run.session
    else:
        # A session without a directory is one that this provider may not bind to. The first one is tried anyway.
        return next((s.id for i, s in enumerate(c.active) if s.id not in c.unbindable and (i == 0 or s.cwd)), "")
    return chosen if chosen not in c.unbindable and find(c, chosen) else ""


def bind(c: "Connection") -> None:
    """Send hello if the state allows it and there is a session."""
    if c.state != "hello":
        return
    c.retry_timer.stop()
    session = pick(c)
    if not session:
        if not c.said_waiting and not c.joining:
            c.said_waiting = True
            c.log.info("connected; waiting for a session")
        return
    hello = c.provider._hello()
    hello["session"] = session
    if c.restoring:
        hello["reconnectToken"] = c.restoring
    c.provider._offers.conn = c
    c.hello_session, c.state = session, "ack"
    for j in c.joining.values():
        j.asked = True  # this hello asks for all
    c.answer_timer.start(_changes.ANSWER_TIMEOUT)
    try:
        c.send(hello)
    except Error as err:
        raise ProviderError(str(err)) from err


def on_hello_ack(c: "Connection", m: dict[str, Any]) -> None:
    """Begin a binding, or the bindings to all sessions."""
    if c.state != "ack":
        return
    c.answer_timer.stop()
    c.state, c.retry_in, c.restoring, c.said_waiting = "bound", FIRST_RETRY, "", False
    c.provider_id, c.persist_dir = m["providerId"], m.get("persistDir", "")
    token = m.get("reconnectToken", "")
    c.confirms_updates = bool(token)  # gateways of the core profile send none, and do not answer updates
    c.receipt_wait = _changes.LIKELY_WAIT if token else _changes.ACK_WAIT
    c.run.remember(token, c.to)
    if c.provider.is_for_all:
        c.provider._conn = c
        c.log.info("bound to all sessions as %s", c.provider_id)
        join(c)
    else:
        c.run.session = c.hello_session
        open_binding(c, new_binding(c, c.hello_session))
    _changes.send_changes(c)


def new_binding(c: "Connection", session: str) -> Bound:
    """Make the binding to a session that the provider has joined."""
    s = find(c, session)
    b = Bound(Binding(session, s.cwd if s else "", c.provider_id, c.persist_dir))
    c.bindings[session] = b
    return b


def open_binding(c: "Connection", b: Bound) -> None:
    """Send what the hello could not contain, such as filters, and then start the binding."""
    offers = c.provider._offers
    offers.queue[:0] = [*offers.session_changes(b.info.session), Change(then=lambda: start_binding(c, b))]


def start_binding(c: "Connection", b: Bound) -> None:
    """Run on_bound."""
    if b.started:
        return
    b.started = True
    c.provider._conn = c
    c.log.info("bound to session %s as %s", b.info.session, b.info.provider_id)
    if c.provider.on_bound is not None:
        b.task = c.spawn(c.run.guarded(call_back(c.provider.on_bound, b.info), "on_bound"))


def on_error(c: "Connection", m: dict[str, Any]) -> None:
    """Handle an error message."""
    code, about = m["code"], m.get("replyTo", "")
    err = Error(code, m["message"])
    if code == AUTH_FAILED:
        if c.state == "auth":
            raise RefusedError(f"{c.to.url}: the gateway refused the token: {m['message']}")
        raise err
    if code == UNSUPPORTED_VERSION:
        raise ProviderError(f"the gateway speaks another version: {err}")
    if c.state == "ack" and about in ("hello", ""):
        on_hello_error(c, code, err)
        return
    if c.sent is not None and _changes.is_about_sent(c, m):
        _changes.finish_change(c, err, c.sent.change)
        _changes.send_changes(c)
        return
    if _requests.on_request_error(c, m, err):
        return
    if about == "session.ready":  # it is sent again when the offer or the list of sessions has changed
        for name, j in c.joining.items():
            if j.binding is None and m.get("sessionId", "") in (name, ""):
                j.asked = False
    if about in _OUTDATED and code in (INVALID_STATE, INVALID_SESSION, UNKNOWN_CALL_ID):
        c.log.debug("the gateway refused %s: %s", about, err)  # it was about something that had just ended
        return
    c.report_refusal(err)


_OUTDATED = frozenset({
    "shutdown.ready", "tool.progress", "tool.result", "gate.result", "transform.result", "session.ready",
    "tools.update", "hooks.update", "context.update", "filter.set",
})


def on_hello_error(c: "Connection", code: str, err: Error) -> None:
    """Choose after a refused hello: give up, try another session, or try again later."""
    c.answer_timer.stop()
    c.state = "hello"
    _changes.unlink(c)
    err.what = f"binding to session {c.hello_session}"
    if code in (INVALID_JSON, PAYLOAD_TOO_LARGE, UNAUTHORIZED):
        raise ProviderError(str(err)) from err
    if code == INVALID_SESSION:
        if c.to.paired:
            raise not_paired(str(err))
        # It has ended or is not open to this provider. A new list comes when anything changes, and clears this.
        c.unbindable.add(c.hello_session)
        c.log.info("session not bound: %s", err)
        bind(c)
        return
    c.report_refusal(err)
    c.retry_timer.start(c.retry_in)
    c.retry_in = min(2 * c.retry_in, MAX_RETRY)


def not_paired(why: str) -> ProviderError:
    """Return the error that ends the run of a paired provider: NotPairedError is its cause."""
    err = ProviderError(why)
    err.__cause__ = NotPairedError(why)
    return err


def on_lifecycle(c: "Connection", m: dict[str, Any]) -> None:
    """Handle a change of a bound session's state."""
    if c.state != "bound":
        return
    session, state = m["sessionId"], m["state"]
    b = c.bindings.get(session)
    if b is None and state == "started" and c.provider.is_for_all:
        b = joined(c, session)
    if b is None or b.ending:
        return
    if state == "shutdown.pending":
        deadline = m.get("deadline", 0) / 1000
        begin_ending(c, b, deadline if deadline > 0 else DEADLINE)
    elif c.provider.on_session is not None:
        c.run.callback(c.provider.on_session, SessionEvent(session, state))


def begin_ending(c: "Connection", b: Bound, deadline: float) -> None:
    """Cancel everything that runs for a session that is about to end, and clean up."""
    session = b.info.session
    c.log.info("session %s is ending", session)
    b.ending = b.started = True
    c.ended.add(session)
    if not c.provider.is_for_all:
        c.state = "ending"
        _changes.unlink(c)
    if b.task is not None:
        b.task.cancel("session ended")
    j = c.joining.pop(session, None)
    if j is not None and j.task is not None:
        j.task.cancel()
    waits: list[asyncio.Future[Any]] = [*_calls.cancel_calls(c, session, "session ended")]
    if b.task is not None:
        waits.append(b.task)
    if c.provider.on_session is not None:
        event = SessionEvent(session, "shutdown.pending", deadline)
        waits.append(c.run.callback(c.provider.on_session, event, timeout=deadline))

    async def clean_up() -> None:
        if waits:
            await asyncio.wait(waits, timeout=deadline)
        c.step(finish_ending, c, b)

    if waits:
        c.spawn(clean_up())
    else:
        finish_ending(c, b)


def finish_ending(c: "Connection", b: Bound) -> None:
    """Tell the gateway that the session may end, and look for another."""
    c.send({"type": "shutdown.ready", "sessionId": b.info.session})
    end_binding(c, b)
    bind(c)


def end_binding(c: "Connection", b: Bound) -> None:
    """Remove a binding whose session has ended. A pairing is for one session, so its run ends."""
    session = b.info.session
    c.bindings.pop(session, None)
    _requests.end_session(c, session)
    _changes.end_session(c, session)
    if c.provider.is_for_all:
        _changes.send_changes(c)
        return
    _changes.unlink(c)
    c.provider._conn = None
    c.run.session = ""
    c.run.remember("", c.to)
    c.state = "hello"
    if c.to.paired:
        raise not_paired(f"session {session} has ended")


def prepare(c: "Connection") -> bool:
    """Start prepare_session for the sessions that need it, and report whether it has returned for all of them."""
    for name, j in list(c.joining.items()):
        if not find(c, name):
            if j.task is not None:
                j.task.cancel()
            del c.joining[name]
    done = True
    for s in c.active:
        j2 = c.joining.get(s.id)
        if s.id in c.bindings and j2 is None or s.id in c.ended:
            continue
        done = (j2 or prepare_one(c, s)).ready and done
    return done


def prepare_one(c: "Connection", s: Session) -> Joining:
    """Start prepare_session for a session, once."""
    c.joining[s.id] = j = Joining(s.id)
    prepare_session = c.provider.prepare_session
    if prepare_session is None or s.id in c.run.prepared:
        j.ready = True
        return j

    async def work() -> None:
        await c.run.guarded(call_back(prepare_session, s), "prepare_session")
        c.step(prepared, c, j)

    j.task = c.spawn(work())
    return j


def prepared(c: "Connection", j: Joining) -> None:
    """Join a session after prepare_session has returned."""
    if c.joining.get(j.session) is not j:
        return  # the session has ended
    j.ready = True
    c.run.prepared.add(j.session)
    if c.state == "bound":
        join(c)
        _changes.send_changes(c)
    bind(c)


def join(c: "Connection") -> None:
    """Send session.ready for the sessions that are prepared, and open the bindings that the gateway has confirmed."""
    prepare(c)
    for s in c.active:  # in the order of the list
        j = c.joining.get(s.id)
        if j is None or not j.ready:
            continue
        if j.binding is not None:
            del c.joining[s.id]
            open_binding(c, j.binding)
        elif not j.asked:
            j.asked = True
            c.send({"type": "session.ready", "sessionId": s.id})


def joined(c: "Connection", session: str) -> Optional[Bound]:
    """Make the binding to a session after the gateway has joined both."""
    s = find(c, session)
    if s is None:
        return None
    j = c.joining.get(session) or prepare_one(c, s)  # it may have started after the hello was sent
    j.asked = True
    j.binding = b = new_binding(c, session)
    join(c)
    _changes.send_changes(c)
    return b


def on_event(c: "Connection", m: dict[str, Any]) -> None:
    """Give an event to its listeners, in order for each session."""
    name, session = m["event"], m["sessionId"]
    on_question = {"question.asked": _questions.on_asked, "question.ended": _questions.on_ended}.get(name)
    if on_question is not None:
        try:
            on_question(c, session, m["data"])
        except (KeyError, TypeError, AttributeError) as err:
            c.log.warning("ignoring a wrong event %s of the gateway: %r", name, err)
        return
    listeners = [fn for kind, fn in c.provider._listeners if EVENTS[kind] == name]
    if not listeners:
        return
    try:
        event = read_event(session, name, m["data"])
    except (KeyError, TypeError, AttributeError) as err:
        c.log.warning("ignoring a wrong event %s of the gateway: %r", name, err)
        return
    for fn in listeners:
        def work(fn: Any = fn) -> Any:
            return c.run.guarded(call_back(fn, event), "listener")
        if not c.run.events.add(session, work):
            c.report_refusal(RuntimeError(f"{name} of session {session} was dropped: {_calls.Sequencer.MAX} events "
                                          "wait for the listeners"))
