"""The offer of a provider to its sessions, and changes of it."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from ._errors import Error
from ._model import Decision, FilterRule, GateCall, Section
from ._tool import Tool
from ._wire import MAX_TOOLS, encode

Message = dict[str, Any]
Decide = Callable[[GateCall], Any]
Rewrite = Callable[[Section], Any]


@dataclass(eq=False)
class Rule:
    """A rule of a provider, made by Provider.deny, Provider.add_context or Provider.gate.

    revision is that of the session's state in which the rule is in force; 0 if no session was bound.
    """

    wire: Message
    decide: Optional[Decide]
    remove_from: Callable[["Rule"], Any]
    revision: int = 0

    async def remove(self) -> int:
        """Remove the rule, and return the revision. Removing it twice is no error."""
        revision: int = await self.remove_from(self)
        return revision


@dataclass(frozen=True)
class Transform:
    """A change of a section of the system prompt: a text, or a function that makes it."""

    action: str
    content: str = ""
    rewrite: Optional[Rewrite] = None

    def wire(self) -> Message:
        """Return the transform as the gateway gets it."""
        return {"action": self.action} if self.rewrite else {"action": self.action,
            "content": self.content}


@dataclass(frozen=True)
class SessionOffer:
    """The part of an offer that differs for one session; None: the same as for all."""

    tools: Optional[tuple[Tool, ...]] = None
    context: Optional[str] = None


@dataclass
class Offer:
    """All that a provider offers its sessions. A change makes a clone and changes that."""

    tools: tuple[Tool, ...] = ()
    rules: tuple[Rule, ...] = ()
    transforms: dict[str, Transform] = field(default_factory=dict)
    context: str = ""
    filters: dict[str, tuple[FilterRule, ...]] = field(default_factory=dict)
    per_session: dict[str, SessionOffer] = field(default_factory=dict)

    def clone(self) -> "Offer":
        """Return a copy whose dicts may be changed."""
        return dataclasses.replace(self, transforms=dict(self.transforms),
            filters=dict(self.filters),
                                   per_session=dict(self.per_session))

    def special(self, session: str) -> SessionOffer:
        """Return a session's own part of the offer."""
        return self.per_session.get(session) or SessionOffer()

    def tools_in(self, session: str) -> tuple[Tool, ...]:
        """Return the tools of a session."""
        special = self.per_session.get(session)
        return self.tools if special is None or special.tools is None else special.tools

    def edit_session(self, session: str, **new: Any) -> None:
        """Change a session's own part of the offer."""
        self.per_session[session] = dataclasses.replace(self.special(session), **new)

    def change_tools(self, session: str, edit: Callable[[tuple[Tool, ...]],
        tuple[Tool, ...]]) -> None:
        """Change the tools of one session, or of all ("")."""
        def limited(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
            tools = edit(tools)
            if len(tools) > MAX_TOOLS:
                raise ValueError(f"{len(tools)} tools are over the limit of {MAX_TOOLS}: use another provider, with a "
                                 "name of its own")
            return tools

        if session:
            self.edit_session(session, tools=limited(self.tools_in(session)))
            return
        self.tools = limited(self.tools)
        for name, special in self.per_session.items():
            if special.tools is not None:
                self.edit_session(name, tools=limited(special.tools))

    def has_session_tools(self) -> bool:
        """Report whether any session has tools of its own."""
        return any(s.tools is not None for s in self.per_session.values())


def wire_tools(tools: tuple[Tool, ...]) -> list[Message]:
    """Return tools as the gateway gets them."""
    return [t.wire() for t in tools]


def update(kind: str, request: str, session: str, **fields: Any) -> Message:
    """Make a message that the gateway confirms."""
    m: Message = {"type": kind, "requestId": request}
    if session:
        m["sessionId"] = session
    m.update(fields)
    return m


def filter_set(stream: str, rules: tuple[FilterRule, ...], session: str, request: str) -> Message:
    """Make the message that sets a filter."""
    return update("filter.set", request, session, stream=stream,
                  rules=[{"match": r.match, "outcome": r.outcome} for r in rules])


@dataclass(eq=False)
class Change:
    """A change of the offer on its way to the gateway.

    Changes are sent one after the other: a gateway accepts one at a time of each kind (docs/protocol.md, Updates),
    and one order for all kinds is simpler. then runs when the turn of this change has come; such a change has no
    message. Without a future no caller waits, and errors go to on_error.
    """

    what: str = ""
    session: str = ""
    apply: Optional[Callable[[Offer], None]] = None
    message: Optional[Callable[[Offer, str, str], Message]] = None
    then: Optional[Callable[[], None]] = None
    future: Optional[asyncio.Future[int]] = None

    def finish(self, revision: int, err: Optional[Exception]) -> Optional[Exception]:
        """End the change: give its caller the result, or return the error if no caller waits."""
        if isinstance(err, Error):
            err.what = self.what
        elif err is not None:
            err = ValueError(f"{self.what}: {err}")
        if self.future is None:
            return err
        if not self.future.done():
            if err is not None:
                self.future.set_exception(err)
            else:
                self.future.set_result(revision)
        return None


class Offers:
    """The offer of a provider, with and without a connection."""

    def __init__(self) -> None:
        """Make an empty offer."""
        self.offer = Offer()  # the gateway has it, or gets it next
        self.sent: Optional[Offer] = None  # the gateway has got it and not confirmed it
        self.queue: list[Change] = []
        self.wake: Optional[Callable[[], None]] = None  # sends the queue; None: changes happen without a gateway

    async def change(self, change: Change) -> int:
        """Make a change, and return the revision once the gateway has confirmed it."""
        change.future = asyncio.get_running_loop().create_future()
        try:
            self.submit(change)
            return await change.future
        finally:
            if change in self.queue:  # no caller waits for it any more
                self.queue.remove(change)

    def submit(self, change: Change) -> Optional[Exception]:
        """Queue a change. Without a connection it happens at once, and the error is that of Change.finish."""
        if self.wake is None:
            return self.apply_offline(change)
        self.queue.append(change)
        self.wake()
        return None

    def apply_offline(self, change: Change) -> Optional[Exception]:
        """Make a change while there is no connection."""
        if change.then:
            return None
        try:
            self.offer, _ = self.attempt(change, "")
        except (Error, ValueError) as err:
            return change.finish(0, err)
        return change.finish(0, None)

    def attempt(self, change: Change, request: str) -> tuple[Offer, Message]:
        """Return the offer after a change, and the message about it."""
        offer = self.offer.clone()
        assert change.message is not None
        try:
            if change.apply:
                change.apply(offer)
            message = change.message(offer, change.session, request)
            encode(message)
        except (Error, ValueError):  # an Error says that it is too large
            raise
        except Exception as err:  # a value of the caller's is of a wrong type
            raise ValueError(str(err) or repr(err)) from err
        return offer, message

    def lookup(self, find: Callable[[Offer], Any]) -> Any:
        """Search the offers that the gateway may be using: the confirmed one, then the one that was sent."""
        found = find(self.offer)
        return find(self.sent) if found is None and self.sent is not None else found

    def tool(self, session: str, name: str) -> Optional[Tool]:
        """Return a tool of a session."""
        for offer in (self.offer, self.sent):  # not lookup: each call comes here
            if offer is not None:
                for t in offer.tools_in(session):
                    if t.name == name:
                        return t
        return None

    def session_changes(self, session: str) -> list[Change]:
        """Return the changes that give a session that was just joined the parts that a hello can't contain."""
        changes = []
        for stream, rules in sorted(self.offer.filters.items()):
            def set_filter(_: Offer, s: str, r: str, stream: str = stream,
                rules: Any = rules) -> Message:
                return filter_set(stream, rules, s, r)
            changes.append(Change(f"setting the filter of {stream}", session, None, set_filter))
        special = self.offer.special(session)
        if special.tools is not None:
            tools = wire_tools(special.tools)
            changes.append(Change("updating the tools", session, None,
                                  lambda _, s, r: update("tools.update", r, s, tools=tools)))
        if special.context is not None:
            changes.append(Change("setting the context", session, None,
                                  lambda _, s, r: update("context.update", r, s,
                                      context=special.context)))
        return changes

    def forget_session(self, session: str) -> None:
        """Remove a session's own part of the offer, after the session has ended."""
        for offer in (self.offer, self.sent):
            if offer is not None:
                offer.per_session.pop(session, None)


def decision_of(value: Any) -> Decision:
    """Return the decision of a gate's function. Only a clear decision allows the call."""
    if isinstance(value, Decision) and value.verdict in ("allow", "context", "deny"):
        return value
    return Decision("deny", "The gate did not decide.")
