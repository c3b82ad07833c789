"""A provider in its smallest form: one tool."""

from tapgw import Provider

p = Provider("hello")


@p.tool
async def greet_hello(name: str = "world") -> str:
    """Greet someone by name.

    Args:
        name: who to greet
    """
    return f"Hello, {name}!"


if __name__ == "__main__":
    p.main()
