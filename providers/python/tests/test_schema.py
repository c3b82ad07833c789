"""Schemas from type hints and docstrings."""

import dataclasses
import enum
import unittest
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, Union

from tapgw import Tool, tool_of
from tapgw._schema import describe, of_function

Id = NewType("Id", str)


class Color(enum.Enum):
    """A color."""

    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    """A point."""

    x: int
    y: int = 0
    color: Color = Color.RED


class Options(TypedDict, total=False):
    """Options."""

    deep: bool


@dataclasses.dataclass
class Loop:
    """It contains itself."""

    next: Optional["Loop"]


def prop(hint: Any) -> Any:
    """Return the schema of a parameter with this hint."""
    def fn(x: Any) -> None:
        pass
    fn.__annotations__["x"] = hint
    return of_function(fn)[0]["properties"]["x"]


class SchemaTest(unittest.TestCase):
    """Schemas of types."""

    def test_types(self) -> None:
        """Each type has its schema."""
        for hint, want in [
            (str, {"type": "string"}), (int, {"type": "integer"}), (float, {"type": "number"}),
            (bool, {"type": "boolean"}), (Any, {}), (dict, {"type": "object"}), (list,
                {"type": "array"}),
            (list[int], {"type": "array", "items": {"type": "integer"}}),
            (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
            (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
            (Optional[str], {"type": ["string", "null"]}), (int | str,
                {"type": ["integer", "string"]}),
            (Union[list[int], None], {"anyOf": [{"type": "array", "items": {"type": "integer"}},
                {"type": "null"}]}),
            (Literal["a", "b"], {"enum": ["a", "b"]}), (Color, {"enum": ["red", "blue"]}), (Id,
                {"type": "string"}),
            (Annotated[int, "how many", {"minimum": 1}],
                {"type": "integer", "description": "how many", "minimum": 1}),
            (Point, {"type": "object", "additionalProperties": False, "required": ["x"],
                "properties": {
                "x": {"type": "integer"}, "y": {"type": "integer"}, "color": {"enum": ["red",
                    "blue"]}}}),
            (Options, {"type": "object", "additionalProperties": False,
                "properties": {"deep": {"type": "boolean"}}}),
        ]:
            with self.subTest(hint=hint):
                self.assertEqual(prop(hint), want)

    def test_function(self) -> None:
        """A parameter without a default is required; the docstring describes it."""
        def fn(name: str, *, times: int = 2, flag: Optional[bool] = None) -> str:
            """Say hello.

            To someone.

            Args:
                name: who to
                    greet
                times (int): how often

            Returns:
                the text
            """
            return name * times

        schema, _ = of_function(fn)
        self.assertEqual(schema, {
            "type": "object", "additionalProperties": False, "required": ["name"], "properties": {
                "name": {"type": "string", "description": "who to greet"},
                "times": {"type": "integer", "description": "how often", "default": 2},
                "flag": {"type": ["boolean", "null"]}}})
        self.assertEqual(tool_of(fn).description, "Say hello.\n\nTo someone.")

    def test_params(self) -> None:
        """The other style of docstrings works too."""
        def fn(name: str) -> None:
            """Say hello.

            :param name: who to greet
            :returns: nothing
            """
        self.assertEqual(describe(fn), ("Say hello.", {"name": "who to greet"}))

    def test_values(self) -> None:
        """Arguments become the values that the hints say."""
        def fn(p: Point, all: list[Point], names: set[str], c: Optional[Color] = None,
            raw: Any = None) -> None:
            pass
        _, convert = of_function(fn)
        self.assertEqual(convert({"p": {"x": 1, "color": "blue"}, "all": [{"x": 2}],
            "names": ["a", "a"], "c": None,
                                  "raw": {"x": 1}}),
                         {"p": Point(1, 0, Color.BLUE), "all": [Point(2)], "names": {"a"},
                             "c": None, "raw": {"x": 1}})

    def test_wrong(self) -> None:
        """The fault of a tool is named."""
        def positional(x: int, /) -> None:
            """Do it."""

        def rest(*x: int) -> None:
            """Do it."""

        def odd(x: complex) -> None:
            """Do it."""

        def keys(x: dict[int, str]) -> None:
            """Do it."""

        def loop(x: Loop) -> None:
            """Do it."""

        def silent(x: int) -> None:
            pass

        for fn, want in [(positional, "have names"), (rest, "have names"),
            (odd, "complex has no JSON Schema"),
                         (keys, "must be str"), (loop, "contains itself"), (silent,
                             "needs a description")]:
            with self.subTest(fn=fn.__name__), self.assertRaisesRegex(ValueError, want):
                tool_of(fn)
        for tool, want in [(Tool("a b", "x", print), "1 to 64 letters"),
            (Tool("a", "", print), "description"),
                           (Tool("a", "x", print, timeout=4000), "timeout"),
                           (Tool("a", "x", print, {1: 1, "1": 2}), "twice")]:  # type: ignore[dict-item]
            with self.subTest(tool=tool), self.assertRaisesRegex(Exception, want):
                tool.check()


if __name__ == "__main__":
    unittest.main()
