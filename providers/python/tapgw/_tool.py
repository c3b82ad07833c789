"""Tools, and how functions of the user's are run."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from . import _schema
from ._wire import TOOL_NAME, check_json

MIN_TIMEOUT, MAX_TIMEOUT = 0.001, 3600


@dataclass(frozen=True)
class Tool:
    """A tool of a provider. tool_of makes one from a function with type hints.

    handler gets the arguments as a dict. It is a coroutine function, or a plain one, which then runs on a thread of
    its own. It returns any value that json can write, an Image or a File. timeout is in seconds, 0.001 to 3600;
    None: five minutes. validate=False stops the gateway from checking arguments against parameters. title is the
    name for people. annotations are hints such as {"readOnlyHint": True}, which MCP clients may go by.
    output_schema is the JSON Schema of the results, which are then dicts.
    """

    name: str
    description: str
    handler: Callable[[dict[str, Any]], Any]
    parameters: Optional[dict[str, Any]] = None
    timeout: Optional[float] = None
    validate: bool = True
    title: str = ""
    annotations: Optional[dict[str, bool]] = None
    output_schema: Optional[dict[str, Any]] = None
    is_async: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        """Note whether the handler is a coroutine function: each call asks."""
        object.__setattr__(self, "is_async", is_async(self.handler))

    def check(self) -> None:
        """Raise a ValueError for the first mistake."""
        problem = ""
        if not isinstance(self.name, str) or not TOOL_NAME.match(self.name):
            problem = "its name must be 1 to 64 letters, digits, '_' or '-'"
        elif not self.description:
            problem = "it needs a description: the model chooses by it"
        elif not callable(self.handler):
            problem = "it needs a handler"
        elif self.timeout is not None and not MIN_TIMEOUT <= self.timeout <= MAX_TIMEOUT:
            problem = f"its timeout is {self.timeout} s, but must be from {MIN_TIMEOUT} to {MAX_TIMEOUT}"
        elif self.parameters is not None and not isinstance(self.parameters, dict):
            problem = "its parameters must be a dict: the JSON Schema of an object"
        elif not isinstance(self.title, str):
            problem = "its title must be a str"
        elif self.annotations is not None and not isinstance(self.annotations, dict):
            problem = "its annotations must be a dict of hints"
        elif self.output_schema is not None and not isinstance(self.output_schema, dict):
            problem = "its output schema must be a dict: the JSON Schema of an object"
        if problem:
            raise ValueError(f"tool {self.name!r}: {problem}")
        check_json(f"tool {self.name!r}: its parameters", self.parameters)
        check_json(f"tool {self.name!r}: its annotations", self.annotations)
        check_json(f"tool {self.name!r}: its output schema", self.output_schema)

    def wire(self) -> dict[str, Any]:
        """Return the tool as the gateway gets it."""
        wire: dict[str, Any] = {"name": self.name, "description": self.description,
                                "parameters": {"type": "object"} if self.parameters is None else self.parameters}
        if self.timeout is not None:
            wire["timeout"] = max(1, round(self.timeout * 1000))
        if not self.validate:
            wire["validate"] = False
        if self.title:
            wire["title"] = self.title
        if self.annotations is not None:
            wire["annotations"] = self.annotations
        if self.output_schema is not None:
            wire["outputSchema"] = self.output_schema
        return wire


def tool_of(fn: Callable[..., Any], *, name: str = "", description: str = "",
            parameters: Optional[dict[str, Any]] = None, timeout: Optional[float] = None,
            validate: bool = True, title: str = "", annotations: Optional[dict[str, bool]] = None,
            output_schema: Optional[dict[str, Any]] = None) -> Tool:
    """Make a tool from a function.

    Its name, its docstring, its type hints and the docstring's parts about parameters are shown to the model;
    each argument that is given here replaces one of them. A parameter is required unless it has a default.
    """
    name = name or getattr(fn, "__name__", "")
    convert: Callable[[dict[str, Any]], dict[str, Any]] = dict
    if parameters is None:
        try:
            parameters, convert = _schema.of_function(fn)
        except (TypeError, NameError, ValueError) as err:
            raise ValueError(f"tool {name!r}: {err}") from None
    if is_async(fn):
        async def handler(args: dict[str, Any]) -> Any:
            return await fn(**convert(args))
    else:
        def handler(args: dict[str, Any]) -> Any:  # type: ignore[misc]
            return fn(**convert(args))
    tool = Tool(name, description or _schema.describe(fn)[0], handler, parameters, timeout,
        validate, title,
                annotations, output_schema)
    tool.check()
    return tool


def is_async(fn: Callable[..., Any]) -> bool:
    """Report whether calling a function returns a coroutine."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__",
        None))


async def invoke(fn: Callable[..., Any], *args: Any) -> Any:
    """Run a function of the user's: a plain one on a thread of its own, because it may block.

    A thread can't be cancelled: it runs on, and its result is ignored. It does not hold up the process's end.
    """
    if is_async(fn):
        return await fn(*args)
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def end(value: Any, err: Optional[BaseException]) -> None:
        if future.done():
            return
        if err is None:
            future.set_result(value)
        elif isinstance(err, StopIteration):  # a future can't hold one
            future.set_exception(RuntimeError(f"the function raised {err!r}"))
        else:
            future.set_exception(err)

    def work() -> None:
        value, err = None, None
        try:
            value = context.run(fn, *args)
        except BaseException as raised:  # whatever it is belongs to the caller
            err = raised
        try:
            loop.call_soon_threadsafe(end, value, err)
        except RuntimeError:
            pass  # the loop has ended

    threading.Thread(target=work, name=f"tapgw {getattr(fn, '__name__', 'function')}",
        daemon=True).start()
    value = await future
    return await value if inspect.isawaitable(value) else value


async def call_back(fn: Callable[..., Any], *args: Any) -> None:
    """Run a callback of the user's on the event loop."""
    value = fn(*args)
    if inspect.isawaitable(value):
        await value
