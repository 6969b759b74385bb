"""Python source made in memory, turned into functions that tracebacks and debuggers can show.

Strategy: a maker (`make_decoder`, `make_encoder`, `walk`) writes lines into a `SourceCode` and names the objects those
lines use; `build` compiles it once. The source contains only names from the protocol's table, never bytes of a frame.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from struct import Struct
from typing import Any

numbers = count(1)


class SourceCode:
    """Lines of a function with their indentation, and the objects that stand behind the names in them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.depth = 0
        self.last = 0

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        """Write a line that ends in a colon; what is written inside the `with` stands below it."""
        self(line)
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, prefix: str = "x") -> str:
        """Return a variable name not used before in this source."""
        self.last += 1
        return f"{prefix}{self.last}"

    def refer(self, thing: Any, prefix: str = "K") -> str:
        """Return a name by which the lines can use `thing`."""
        for name, known in self.names.items():
            if known is thing:
                return name
        name = self.fresh(prefix)
        self.names[name] = thing
        return name

    def build(self, function: str, label: str) -> Any:
        """Compile, and give the function of this name. `label` is the file name that tracebacks show."""
        filename = f"<kproxy {label} #{next(numbers)}>"
        text = "\n".join(self.lines) + "\n"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        exec(compile(text, filename, "exec"), self.names)  # only names from the table get here
        return self.names[function]


@cache
def form(codes: str) -> Struct:
    """Return the `struct.Struct` of these format codes, big-endian."""
    return Struct(f">{codes}")


@cache
def packer(codes: str) -> Callable[..., bytes]:
    """Return `struct.Struct.pack` of these format codes, big-endian; the same object for the same codes."""
    return form(codes).pack


@cache
def unpacker(codes: str) -> Callable[[bytes, int], tuple[Any, ...]]:
    """Return `struct.Struct.unpack_from` of these format codes, big-endian; the same object for the same codes."""
    return form(codes).unpack_from
