"""JSON Schemas from type hints and docstrings, and the values that they describe."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import re
import types
import typing
from typing import Any, Callable, Literal, Optional, Union

Convert = Optional[Callable[[Any], Any]]  # makes the hinted value from a JSON value; None: it is the same

_PLAIN: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", dict: "object", list: "array",
}
_ARRAYS: dict[Any, Convert] = {
    list: None, collections.abc.Sequence: None, collections.abc.Iterable: None,
    set: set, frozenset: frozenset, tuple: tuple,
}


def describe(fn: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description of a function, and those of its parameters, from its docstring."""
    doc = inspect.getdoc(fn) or ""
    texts = {m[1]: " ".join(m[2].split()) for m in re.finditer(r"^:param (?:\S+ )?(\w+): *(.*)$",
        doc, re.M)}
    head, _, args = re.sub(r"(?m)^:\w+.*\n?", "", doc).partition("\nArgs:\n")
    if doc.startswith("Args:\n"):
        head, args = "", doc[len("Args:\n"):]
    name, indent = "", 0
    for line in args.splitlines():
        if line.strip() and not line[0].isspace():
            break  # the next part
        found = re.match(r"(\s+)(\w+)(?: *\([^)]*\))?: *(.*)", line)
        if found and (not name or len(found[1]) <= indent):
            indent, name, texts[found[2]] = len(found[1]), found[2], found[3]
        elif name and line.strip():
            texts[name] += " " + line.strip()
    return re.split(r"\n(?:Returns|Raises|Yields|Example|Examples):\n",
        "\n" + head)[0].strip(), texts


def of_function(fn: Callable[..., Any]) -> tuple[dict[str, Any],
    Callable[[dict[str, Any]], dict[str, Any]]]:
    """Return the schema of a function's arguments, and a function that makes them of a call's arguments."""
    hints = typing.get_type_hints(fn if inspect.isroutine(fn) else type(fn).__call__,
        include_extras=True)
    _, texts = describe(fn)
    properties: dict[str, Any] = {}
    required: list[str] = []
    converts: dict[str, Callable[[Any], Any]] = {}
    for p in inspect.signature(fn).parameters.values():
        if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise TypeError(f"its parameter {p} can't be an argument of a tool: they have names")
        try:
            schema, convert = _schema(hints.get(p.name, Any), ())
        except TypeError as err:
            raise TypeError(f"its parameter {p.name}: {err}; pass parameters= with a JSON Schema") from None
        if p.name in texts:
            schema.setdefault("description", texts[p.name])
        if p.default is p.empty:
            required.append(p.name)
        elif isinstance(p.default, (str, int, float, bool)):
            schema["default"] = p.default.value if isinstance(p.default, enum.Enum) else p.default
        properties[p.name] = schema
        if convert:
            converts[p.name] = convert
    whole: dict[str, Any] = {"type": "object", "properties": properties,
        "additionalProperties": False}
    if required:
        whole["required"] = required
    if not converts:
        return whole, lambda args: args
    return whole, lambda args: {k: converts[k](v) if k in converts else v for k, v in args.items()}


def _schema(hint: Any, within: tuple[Any, ...]) -> tuple[dict[str, Any], Convert]:
    """Return a schema that the caller may change. within has the classes around the hint."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:  # first, because its texts may be no keys of a dict
        schema, convert = _schema(args[0], within)
        for text in args[1:]:
            if isinstance(text, str):
                schema["description"] = text
            elif isinstance(text, dict):
                schema.update(text)
        return schema, convert
    if hint is Any or hint is object:
        return {}, None
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}, None
    if origin is Literal:
        return {"enum": list(args)}, None
    if origin is Union or origin is types.UnionType:
        return _union(args, within)
    if hint in _ARRAYS or origin in _ARRAYS:
        return _array(hint if hint in _ARRAYS else origin, args, within)
    if origin in (dict, collections.abc.Mapping, collections.abc.MutableMapping):
        if args[0] is not str:
            raise TypeError(f"the keys of {hint} must be str")
        value, convert = _schema(args[1], within)
        schema = {"type": "object", "additionalProperties": value} if value else {"type": "object"}
        return schema, convert and (lambda v: {k: convert(x) for k, x in v.items()})
    if hasattr(hint, "__supertype__"):  # NewType
        return _schema(hint.__supertype__, within)
    if isinstance(hint, type):
        if hint in within:
            raise TypeError(f"{hint.__name__} contains itself")
        return _class(hint, (*within, hint))
    raise TypeError(f"{hint} has no JSON Schema")


def _array(origin: Any, args: tuple[Any, ...], within: tuple[Any, ...]) -> tuple[dict[str, Any],
    Convert]:
    make = _ARRAYS[origin]
    if origin is tuple and args and args[-1] is not Ellipsis:
        raise TypeError("a tuple must be tuple[T, ...]")
    item, convert = _schema(args[0], within) if args else ({}, None)
    schema: dict[str, Any] = {"type": "array"}
    if item:
        schema["items"] = item
    if convert:
        each = convert
        return schema, lambda v: (make or list)([each(x) for x in v])
    return schema, make


def _union(args: tuple[Any, ...], within: tuple[Any, ...]) -> tuple[dict[str, Any], Convert]:
    parts = [_schema(a, within) for a in args]
    converts = [c for _, c in parts if c]
    schema: dict[str, Any] = {"anyOf": [s for s, _ in parts]}
    if all(set(s) == {"type"} for s, _ in parts):
        schema = {"type": [s["type"] for s, _ in parts]}
    if not converts:
        return schema, None
    if len(args) == 2 and type(None) in args:
        return schema, lambda v: None if v is None else converts[0](v)
    raise TypeError("a union of classes is ambiguous")


def _class(hint: Any, within: tuple[Any, ...]) -> tuple[dict[str, Any], Convert]:
    if issubclass(hint, enum.Enum):
        return {"enum": [m.value for m in hint]}, hint
    hints = typing.get_type_hints(hint, include_extras=True)
    if typing.is_typeddict(hint):
        required = sorted(hint.__required_keys__)
    elif dataclasses.is_dataclass(hint):
        missing = dataclasses.MISSING
        fields = [f for f in dataclasses.fields(hint) if f.init]
        hints = {f.name: hints[f.name] for f in fields}
        required = [f.name for f in fields if f.default is missing and f.default_factory is missing]
    else:
        raise TypeError(f"{hint.__name__} has no JSON Schema: use a dataclass or a TypedDict")
    parts = {name: _schema(h, within) for name, h in hints.items()}
    converts = {name: c for name, (_, c) in parts.items() if c}
    schema: dict[str, Any] = {"type": "object",
        "properties": {name: s for name, (s, _) in parts.items()},
                              "additionalProperties": False}
    if required:
        schema["required"] = required

    def convert(value: Any) -> Any:
        fields = {k: converts[k](v) if k in converts else v for k, v in value.items()}
        return fields if typing.is_typeddict(hint) else hint(**fields)

    return schema, None if typing.is_typeddict(hint) and not converts else convert
