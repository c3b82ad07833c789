"""The provider."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any, Callable, Optional, TypeVar, Union, overload

from ._connection import Connection
from ._errors import INVALID_JSON, PAYLOAD_TOO_LARGE, Error, NotConnectedError, NotPairedError, ProviderError
from ._model import EVENTS, Entry, Event, FilterRule, Level, Match, Receipt
from ._offer import Change, Decide, Message, Offer, Rewrite, Rule, Transform, filter_set, update, wire_tools
from ._options import Options
from ._pair import pair
from ._requests import Requests
from ._runner import Runner
from ._tool import Tool, tool_of
from ._wire import MAX_TEXT, check_json

F = TypeVar("F", bound=Callable[..., Any])


class Provider(Options):
    """A process that gives tools, events, rules and prompt text to the sessions of a coding agent.

    Methods that change the offer return when the gateway has confirmed the change, with the revision of the session's
    state; from then on the session uses the new state. Revision 0 means that no session is bound: the next one gets
    the new state. A change that the gateway refuses has no effect, and raises its Error. Methods may be called before
    run and while it runs, on its event loop.
    """

    _runner: Optional[Runner] = None
    _gates = 0

    # Running.

    async def run(self) -> None:
        """Connect to the gateway and serve until stop is called or the task is cancelled.

        Then it says goodbye and waits up to five seconds for functions of yours that still run. While there is no
        gateway or no session, it waits and tries again. It raises a ProviderError where waiting can't help, and a
        NotPairedError when the session of a pairing has ended.
        """
        self._check()
        if self._runner is not None:
            raise ProviderError(f"provider {self.name}: it is running already")
        self._runner = runner = Runner(self)
        work = asyncio.ensure_future(runner.run())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            runner.stop()
            await work
            raise
        except ProviderError as err:
            if isinstance(err.__cause__, NotPairedError):
                raise err.__cause__ from None
            raise ProviderError(f"provider {self.name}: {err}") from err
        finally:
            self._runner = None

    def stop(self) -> None:
        """Make run return, after a goodbye."""
        if self._runner is not None:
            self._runner.stop()

    def main(self) -> None:
        """Run the provider until SIGINT or SIGTERM. It is the last line of a program.

        A run that can't go on ends the program with one line and exit code 1. Functions that ignore that they are
        cancelled do not hold up its end.
        """
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._main())
        except (ProviderError, NotPairedError) as err:
            sys.exit(f"stopping: {err}")
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=1))
            for task in asyncio.all_tasks(loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined] # the run has said that it is left
            loop.close()

    async def _main(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(self.run())
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, self.stop)
            except NotImplementedError:  # not on this system: Ctrl-C cancels the task
                pass
        await task

    async def pair(self, ask: Callable[[str], Any]) -> str:
        """Get a token for a provider without one, and return it (docs/protocol.md, Pairing).

        The gateway shows a code of six digits. ask gets the gateway's prompt, asks the user and returns the code; it
        has two minutes. run then uses the token. A wrong code is the Error AUTH_FAILED.
        """
        self._check()
        self._paired = await pair(self, ask)
        return self._paired.token

    # Tools.

    @overload
    def tool(self, fn: F) -> F: ...

    @overload
    def tool(self, *, name: str = "", description: str = "",
        parameters: Optional[dict[str, Any]] = None,
             timeout: Optional[float] = None, validate: bool = True, title: str = "",
             annotations: Optional[dict[str, bool]] = None,
             output_schema: Optional[dict[str, Any]] = None) -> Callable[[F], F]: ...

    def tool(self, fn: Optional[F] = None, **options: Any) -> Union[F, Callable[[F], F]]:
        """Add a function as a tool; use it as a decorator. tool_of explains its options.

        It raises a ValueError if the tool is wrong. It does not wait for the gateway; if that refuses the tool,
        on_error gets the error.
        """
        def add(fn: F) -> F:
            err = self._offers.submit(_addition(tool_of(fn, **options), ""))
            if err is not None:
                raise err
            return fn

        return add if fn is None else add(fn)

    async def add_tool(self, tool: Tool, *sessions: str) -> int:
        """Add a tool or replace the tool of that name, in all sessions or only in these."""
        tool.check()
        return await self._change_each(sessions, lambda s: _addition(tool, s))

    async def remove_tool(self, name: str, *sessions: str) -> int:
        """Remove a tool from all sessions, or only from these. Running calls of the tool run to their end."""
        def removal(session: str) -> Change:
            def message(o: Offer, s: str, r: str) -> Message:
                return _tools_update(o, s, r) or update("tools.update", r, s, remove=[name])

            return Change(f"removing tool {name}", session, lambda o: o.change_tools(
                session, lambda tools: tuple(t for t in tools if t.name != name)), message)

        return await self._change_each(sessions, removal)

    async def set_tools(self, tools: list[Tool], *sessions: str) -> int:
        """Replace all tools in one step, in all sessions or only in these. A provider may have 100 tools."""
        names = [t.name for t in tools]
        for i, t in enumerate(tools):
            t.check()
            if t.name in names[:i]:
                raise ValueError(f"tool {t.name!r}: stands twice in the list")
        new = tuple(tools)

        def setting(session: str) -> Change:
            return Change("setting the tools", session, lambda o: o.change_tools(session,
                lambda _: new),
                          lambda _, s, r: update("tools.update", r, s, tools=wire_tools(new)))

        return await self._change_each(sessions, setting)

    # Events.

    async def push(
        self, text: str = "", *, level: Level = "surface", stream: str = "", prompt: str = "",
        metadata: Optional[dict[str, Any]] = None, session: str = "", broadcast: bool = False,
        wait_delivered: bool = False,
    ) -> Receipt:
        """Send an event to a session, and return the gateway's receipt (docs/protocol.md, Pushes).

        prompt starts a turn with that text, whatever the level is. A provider of all sessions must give session or
        broadcast. wait_delivered waits until a queued event has another fate. The error is NotConnectedError, or the
        Error with which the gateway refused the event: RATE_LIMITED for more than ten a second.
        """
        if not text and not prompt:
            raise Error(INVALID_JSON, "an event needs a text or a prompt", what="pushing")
        if metadata is not None:
            check_json("pushing: metadata", metadata)
        fields: dict[str, Any] = {"event": text, "prompt": prompt, "stream": stream,
            "sessionId": session,
                                  "broadcast": broadcast, "metadata": metadata}
        message = {"type": "push", "level": level, **{k: v for k, v in fields.items() if v
            or v == {}}}
        return await self._requests("pushing").push(message, wait_delivered)

    async def keep(self, text: str) -> Receipt:
        """Store a text in the provider's stream."""
        return await self.push(text, level="keep")

    async def surface(self, text: str) -> Receipt:
        """Store a text and show it in the session's timeline."""
        return await self.push(text)

    async def inject(self, text: str) -> Receipt:
        """Store a text, show it and send it to the model, in a turn of its own."""
        return await self.push(text, level="inject")

    async def set_filter(self, stream: str, *rules: FilterRule) -> int:
        """Make the gateway filter the events that this provider pushes into a stream.

        The first rule that matches decides; an event that no rule matches keeps its level. At most 100 rules; no
        rules remove the filter.
        """
        return await self._offers.change(Change(
            f"setting the filter of {stream}", "", lambda o: o.filters.update({stream: rules}),
            lambda _, s, r: filter_set(stream, rules, s, r)))

    async def query(self, *streams: str, last: int = 0, session: str = "") -> list[Entry]:
        """Read the newest events of streams, the newest first; without streams, of all this provider's.

        last: how many of each stream, at most 100; 0: 20. Streams of others ("stream@provider") need trust internal.
        """
        message: Message = {"type": "stream.query"}
        if session:
            message["sessionId"] = session
        if streams:
            message["streams"] = list(streams)
        if last:
            message["last"] = last
        return await self._requests("querying").query(message)

    def subscribe(self, kind: type[Event], fn: Callable[[Any], Any]) -> None:
        """Call a function with each event of a type: UserMessage, AssistantMessage, ToolExecution, AssistantIntent,
        SessionError, Pushed.

        Events of one session come one after the other. Call subscribe before run: on a running provider it has an
        effect from the next connection on.
        """
        if kind not in EVENTS:
            raise ValueError(f"{kind!r} is no type of event")
        self._listeners.append((kind, fn))

    @property
    def _conn(self) -> Optional[Connection]:
        """Return the connection for pushes and queries; None while no session is bound."""
        conn = self._runner.conn if self._runner else None
        return conn if conn is not None and conn.open and not conn.closed else None

    def _requests(self, what: str) -> Requests:
        conn = self._conn
        if conn is None:
            raise NotConnectedError(f"{what}: not bound to a session")
        return conn.requests

    # Rules.

    async def deny(self, match: Match, reason: str) -> Rule:
        """Add a rule that denies the calls that match, with a reason for the model."""
        return await self._add_rule("adding a rule", match, {"action": "deny", "reason": reason})

    async def add_context(self, match: Match, text: str) -> Rule:
        """Add a rule that gives the model a text with the calls that match. It does not stop them."""
        return await self._add_rule("adding a rule", match, {"action": "context", "content": text})

    async def gate(self, match: Match, decide: Decide, *, fail_open: bool = False) -> Rule:
        """Add a rule that asks a function about each call that matches, before the call runs.

        The function returns allow(), allow_with(text) or deny(reason), within five seconds. Anything else denies the
        call, and so does silence, unless fail_open is set. An exception always denies.
        """
        self._gates += 1
        wire: Message = {"action": "gate", "gateId": f"gate-{self._gates}"}
        if fail_open:
            wire["failOpen"] = True
        return await self._add_rule("adding a gate", match, wire, decide)

    async def _add_rule(self, what: str, match: Match, wire: Message,
        decide: Optional[Decide] = None) -> Rule:
        rule = Rule({"match": match.wire(), **wire} if match.wire() else wire, decide,
            self._remove_rule)
        rule.revision = await self._change_rules(what, lambda rules: (*rules, rule))
        return rule

    async def _remove_rule(self, rule: Rule) -> int:
        return await self._change_rules("removing a rule",
            lambda rules: tuple(r for r in rules if r is not rule))

    async def _change_rules(self, what: str, edit: Callable[[tuple[Rule, ...]],
        tuple[Rule, ...]]) -> int:
        def apply(o: Offer) -> None:
            o.rules = edit(o.rules)

        return await self._offers.change(Change(
            what, "", apply, lambda o, s, r: update("hooks.update", r, s,
                onPreToolUse=[x.wire for x in o.rules])))

    # The prompt.

    async def set_context(self, text: str, *sessions: str) -> int:
        """Replace the text that is added to each prompt of the user, in all sessions or only in these."""
        if len(text.encode(errors="replace")) > MAX_TEXT:
            raise Error(PAYLOAD_TOO_LARGE, f"it is over {MAX_TEXT} bytes",
                what="setting the context")

        def setting(session: str) -> Change:
            def apply(o: Offer) -> None:
                if session:
                    o.edit_session(session, context=text)
                    return
                o.context = text
                for name in o.per_session:
                    o.edit_session(name, context=None)

            return Change("setting the context", session, apply,
                          lambda _, s, r: update("context.update", r, s, context=text))

        return await self._change_each(sessions, setting)

    async def append(self, section: str, text: str) -> int:
        """Add a text to the end of a section of the system prompt.

        A provider has one change of each section: a later append, prepend, replace or transform replaces it.
        """
        return await self._transform(section, Transform("append", text))

    async def prepend(self, section: str, text: str) -> int:
        """Add a text to the beginning of a section."""
        return await self._transform(section, Transform("prepend", text))

    async def replace(self, section: str, text: str) -> int:
        """Put a text in place of a section."""
        return await self._transform(section, Transform("replace", text))

    async def transform(self, section: str, rewrite: Rewrite) -> int:
        """Make a function write a section anew for each prompt.

        It gets a Section and has two seconds. If it takes longer or raises, the section stays as it is.
        """
        return await self._transform(section, Transform("callback", rewrite=rewrite))

    async def remove_transform(self, section: str) -> int:
        """Remove the provider's change of a section."""
        return await self._transform(section, None)

    async def _transform(self, section: str, t: Optional[Transform]) -> int:
        if not section:
            raise ValueError("changing a section of the prompt: its name is empty")

        def apply(o: Offer) -> None:
            o.transforms.pop(section, None)
            if t is not None:
                o.transforms[section] = t

        wire = {section: t.wire() if t else None}
        return await self._offers.change(Change(
            f"changing section {section}", "", apply, lambda _, s, r: update("hooks.update", r, s,
                transforms=wire)))

    async def _change_each(self, sessions: tuple[str, ...], make: Callable[[str], Change]) -> int:
        revision = 0
        for session in sessions or ("",):
            revision = max(revision, await self._offers.change(make(session)))
        return revision


def _addition(tool: Tool, session: str) -> Change:
    def edit(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        if any(t.name == tool.name for t in tools):
            return tuple(tool if t.name == tool.name else t for t in tools)
        return (*tools, tool)

    def message(o: Offer, s: str, r: str) -> Message:
        return _tools_update(o, s, r) or update("tools.update", r, s, tools=[tool.wire()],
            remove=[])

    return Change(f"adding tool {tool.name}", session, lambda o: o.change_tools(session, edit),
        message)


def _tools_update(o: Offer, session: str, request: str) -> Optional[Message]:
    """Return an update with the whole list of tools, which every gateway understands.

    None: a list for all sessions would remove a session's own tools, so the difference is sent.
    """
    if not session and o.has_session_tools():
        return None
    return update("tools.update", request, session, tools=wire_tools(o.tools_in(session)))
