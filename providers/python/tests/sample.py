"""The samples of testdata/sdk/README.md: sample.py NAME."""

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tapgw import (  # noqa: E402
    ALL_SESSIONS, AssistantIntent, AssistantMessage, Binding, Concurrency, Content, Decision, Error, File, FilterRule,
    GateCall, Image, Match, Part, Provider, Pushed, Question, Receipt, Rule, Section, SessionError, Tool,
    ToolExecution, UserMessage, allow, allow_with, current_call, deny, progress,
)


def sample(name: str) -> Provider:
    """Make a sample by its name."""
    options: dict[str, Any] = {}
    if name == "all":
        async def bound(b: Binding) -> None:
            await p.push(f"bound to {b.session}", session=b.session, level="keep")
        options = {"session": ALL_SESSIONS, "on_bound": bound}
    elif name == "answerer":
        options = {"on_question": lambda q: hear(p, q)}
    elif name == "instance":
        options = {"instance": "tab-1", "metadata": {"title": "Tab 1"},
            "concurrency": Concurrency(2, "provider"),
                   "startup_context": "At first.", "context": "Always."}
    token = "" if name == "paired" else os.environ["TAP_PROVIDER_TOKEN"]
    p = Provider(name, url=os.environ["TAP_GATEWAY_URL"], token=token, **options)
    add_tools(p)
    if name == "listener":
        listen(p)
    return p


def listen(p: Provider) -> None:
    """Push the events that are heard."""
    async def say(session: str, text: str) -> None:
        await p.push(text, session=session, level="keep")

    p.subscribe(UserMessage, lambda e: say(e.session, f"user: {e.content}"))
    p.subscribe(AssistantMessage,
        lambda e: say(e.session, f"assistant: {e.content} ({len(e.tool_requests)})"))
    p.subscribe(ToolExecution, lambda e: say(
        e.session,
        f"tool: {e.tool} by {e.provider}: failed={str(e.failed).lower()}{e.code and ' '}{e.code}: {e.output}"))
    p.subscribe(AssistantIntent, lambda e: say(e.session, f"intent: {e.intent}"))
    p.subscribe(SessionError, lambda e: say(e.session, f"error: {e.message}"))
    p.subscribe(Pushed, lambda e: say(e.session,
        f"pushed: {e.stream}@{e.provider} {e.level}: {e.text}"))


questions: dict[str, Question] = {}


async def hear(p: Provider, q: Question) -> None:
    """Push a question, and its end."""
    questions[q.id] = q
    schema = "" if q.schema is None else json.dumps(q.schema, separators=(",", ":"))
    try:
        await p.push(f"asked: {q.kind}: {q.message}: {q.detail}: [{', '.join(q.choices)}] "
                     f"free={str(q.freeform).lower()} schema={schema} until {q.expires_at:%Y-%m-%dT%H:%M:%SZ}",
                     session=q.session, level="keep")
        if q.message == "Answer it.":
            await q.answer(text="by itself")
            await p.push("answered by itself", session=q.session, level="keep")
            return
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        if q.end is not None:
            await p.push(f"ended: {q.end.reason} by {q.end.by}: {q.end.person}", session=q.session,
                level="keep")
        raise


def add_tools(p: Provider) -> None:
    """Add the tools: they make the provider act as a scenario demands."""
    rules: list[Rule] = []

    def tool(fn: Any) -> Any:
        p.tool(fn, description=f"The sample tool {fn.__name__}", parameters={"type": "object"})
        return fn

    @tool
    async def echo(text: str = "") -> str:
        return text

    @tool
    async def value(value: Any = None) -> Any:
        return value

    @tool
    async def large(size: int = 0) -> str:
        return "x" * size

    @tool
    async def parts() -> Content:
        return Content([Part("text", text="look"), Part("image", mime_type="image/png",
            data=b"png"),
                        Part("resource", uri="mem://a", name="a")], data={"n": 1})

    @tool
    async def image() -> Image:
        return Image(b"png")

    @tool
    async def slow() -> None:
        await asyncio.get_running_loop().create_future()

    @tool
    async def fail(code: str = "", text: str = "", retryable: bool = False) -> None:
        raise Error(code, text, retryable=retryable)

    @tool
    def crash() -> None:
        raise RuntimeError("it broke")

    @tool
    async def progress(lines: list[str] = []) -> str:
        for line in lines:
            await show(line)
        return "done"

    @tool
    async def file(text: str = "") -> File:
        call = current_call()
        assert call is not None
        path = Path(call.persist_dir, "report.txt")
        path.write_text(text)
        return File(str(path), "text/plain")

    add_push_tools(p, tool)
    add_offer_tools(p, tool)
    add_rule_tools(p, tool, rules)


show = progress


def add_push_tools(p: Provider, tool: Any) -> None:
    """Add the tools that push and query."""
    def receipt(r: Receipt) -> dict[str, Any]:
        return {"session": r.session, "seq": r.seq, "fate": r.fate, "reason": r.reason}

    @tool
    async def push(event: str = "", level: Any = "surface", broadcast: bool = False,
        wait: bool = False,
                   **more: Any) -> Any:
        r = await p.push(event, level=level, broadcast=broadcast, wait_delivered=wait, **more)
        return [receipt(x) for x in r.each] if broadcast else receipt(r)

    @tool
    async def answer(question: str = "", **fields: Any) -> str:
        try:
            await questions[question].answer(**fields)
        except Error as err:
            return f"refused: {err.code}: {err.message}"
        return "answered"

    @tool
    async def filter(stream: str = "", rules: list[Any] = []) -> int:
        return await p.set_filter(stream, *(FilterRule(r["match"], r["outcome"]) for r in rules))

    @tool
    async def query(streams: list[str] = [], last: int = 0, session: str = "") -> list[str]:
        def text(metadata: Any) -> str:
            return "" if metadata is None else json.dumps(metadata, separators=(",", ":"))

        return [f"{e.stream}@{e.provider} {e.level} {e.text} {e.prompt} {text(e.metadata)}"
                for e in await p.query(*streams, last=last, session=session)]


def add_offer_tools(p: Provider, tool: Any) -> None:
    """Add the tools that change the offer."""
    def only(session: str) -> tuple[str, ...]:
        return (session,) if session else ()

    def named(name: str) -> Tool:
        async def say(_: dict[str, Any]) -> str:
            return name
        if name == "described":
            return Tool(name, "Says its name", say, title="The title",
                output_schema={"type": "object"},
                        annotations={"readOnlyHint": True, "openWorldHint": False})
        return Tool(name, "Says its name", say)

    @tool
    async def context(text: str = "", session: str = "") -> int:
        return await p.set_context(text, *only(session))

    @tool
    async def add_tool(name: str, session: str = "") -> int:
        return await p.add_tool(named(name), *only(session))

    @tool
    async def remove_tool(name: str, session: str = "") -> int:
        return await p.remove_tool(name, *only(session))

    @tool
    async def set_tools(names: list[str], session: str = "") -> int:
        return await p.set_tools([named(n) for n in names], *only(session))

    @tool
    async def section(section: str, action: str, text: str = "") -> int:
        if action == "remove":
            return await p.remove_transform(section)
        if action != "callback":
            return await {"append": p.append, "prepend": p.prepend,
                "replace": p.replace}[action](section, text)

        def upper(s: Section) -> str:
            if s.current == "fail":
                raise RuntimeError("no text for this")
            return s.current.upper()

        return await p.transform(section, upper)


def add_rule_tools(p: Provider, tool: Any, rules: list[Rule]) -> None:
    """Add the tools that add and remove rules."""
    def added(rule: Rule) -> int:
        rules.append(rule)
        return rule.revision

    async def decide(call: GateCall) -> Any:
        text = call.args.get("text", "")
        choice = call.args.get("decide")
        if choice == "fail":
            raise RuntimeError(text)
        decisions: dict[Any, Decision] = {"allow": allow(), "explain": allow_with(text),
            "deny": deny(text)}
        return decisions.get(choice)

    async def refuse(match: dict[str, str] = {}, text: str = "") -> int:
        return added(await p.deny(Match(**match), text))

    refuse.__name__ = "deny"
    p.tool(refuse, description="The sample tool deny", parameters={"type": "object"})

    @tool
    async def explain(match: dict[str, str] = {}, text: str = "") -> int:
        return added(await p.add_context(Match(**match), text))

    @tool
    async def gate(match: dict[str, str] = {}, failOpen: bool = False) -> int:
        return added(await p.gate(Match(**match), decide, fail_open=failOpen))

    @tool
    async def remove_rules() -> int:
        revision = 0
        while rules:
            revision = await rules.pop(0).remove()
        return revision


async def run(name: str) -> None:
    """Run a sample until SIGTERM."""
    p = sample(name)
    if name == "paired":
        async def code(prompt: str) -> str:
            return "123456"
        await p.pair(code)
    await p._main()


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    asyncio.run(run(sys.argv[1]))
