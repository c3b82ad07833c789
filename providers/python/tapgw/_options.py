"""The options of a provider, and the state that its runs share."""

from __future__ import annotations

import logging
from typing import Any, Callable, Optional

from ._discover import Endpoint, check_url, endpoints
from ._errors import Error, ProviderError
from ._model import ALL_SESSIONS, EVENTS, Binding, Concurrency, Question, Session, SessionEvent
from ._offer import Message, Offers, wire_tools
from ._wire import MAX_TEXT, NAME, PROTOCOL_VERSION, check_json


class Options:
    """The options of a provider, its offer and its listeners."""

    def __init__(
        self, name: str, *, url: str = "", token: str = "", token_file: str = "", instance: str = "",
        metadata: Optional[dict[str, Any]] = None, session: str = "",
        pick_session: Optional[Callable[[list[Session]], Optional[str]]] = None,
        prepare_session: Optional[Callable[[Session],
            Any]] = None, context: str = "", startup_context: str = "",
        concurrency: Optional[Concurrency] = None, max_calls: int = 64,
        on_bound: Optional[Callable[[Binding], Any]] = None,
        on_session: Optional[Callable[[SessionEvent], Any]] = None,
        on_question: Optional[Callable[[Question], Any]] = None,
        on_error: Optional[Callable[[Exception],
            Any]] = None, logger: Optional[logging.Logger] = None,
    ) -> None:
        """Make a provider; docs/providers.md explains the options. Mistakes in them are errors of run."""
        self.name = name
        self.url, self.token, self.token_file = url, token, token_file
        self.instance, self.metadata, self.session = instance, metadata, session
        self.pick_session, self.prepare_session = pick_session, prepare_session
        self.startup_context, self.concurrency, self.max_calls = startup_context, concurrency, max_calls
        self.on_bound, self.on_session, self.on_error = on_bound, on_session, on_error
        self.on_question = on_question
        self.logger = logger or logging.getLogger("tapgw")
        self._offers = Offers()
        self._offers.offer.context = context
        self._listeners: list[tuple[type, Callable[[Any], Any]]] = []
        self._paired: Optional[Endpoint] = None

    @property
    def is_for_all(self) -> bool:
        """Report whether the provider binds to every session."""
        return self.session == ALL_SESSIONS

    def _check(self) -> None:
        problem = ""
        if not isinstance(self.name, str) or not NAME.match(self.name):
            problem = "its name must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
        elif len(self.instance.encode()) > 256:
            problem = "its instance is over 256 bytes"
        elif len(self._offers.offer.context.encode()) > MAX_TEXT:
            problem = f"its context is over {MAX_TEXT} bytes"
        elif len(self.startup_context.encode()) > MAX_TEXT:
            problem = f"its startup_context is over {MAX_TEXT} bytes"
        elif self.max_calls < 1:
            problem = "max_calls must be at least 1"
        if problem:
            raise ProviderError(f"provider {self.name}: {problem}")
        check_url("url", self.url)
        if self.metadata is not None:
            try:
                check_json("metadata", self.metadata)
            except Error as err:
                raise ProviderError(f"provider {self.name}: {err}") from err

    def _endpoints(self) -> list[Endpoint]:
        return [self._paired] if self._paired else endpoints(self.url, self.token, self.token_file)

    def _hello(self) -> Message:
        # Hooks, lists and the context are there even if they are empty: the gateway restores fields
        # that are left out.
        offer = self._offers.offer
        hooks: dict[str, Any] = {}
        if offer.rules:
            hooks["onPreToolUse"] = [r.wire for r in offer.rules]
        if offer.transforms:
            hooks["transforms"] = {name: t.wire() for name, t in offer.transforms.items()}
        events = {EVENTS[kind] for kind, _ in self._listeners}
        if self.on_question is not None:
            events |= {"question.asked", "question.ended"}
        hello: Message = {
            "type": "hello", "name": self.name, "protocolVersion": PROTOCOL_VERSION, "tools": wire_tools(offer.tools),
            "hooks": hooks, "subscribe": sorted(events),
            "context": offer.context,
        }
        if self.instance:
            hello["instance"] = self.instance
        if self.startup_context:
            hello["startup_context"] = self.startup_context
        if self.metadata is not None:
            hello["metadata"] = self.metadata
        if self.concurrency is not None:
            hello["concurrency"] = {"max": self.concurrency.max, "scope": self.concurrency.scope}
        return hello
