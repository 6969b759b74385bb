"""Avro: values of a datum, and the values at a path.

    schema = AvroSchema('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}')
    schema.decode(b"\\x54")                       # {"id": 42}
    list(schema.search(("id",))(b"\\x54"))        # [42]

`decode` returns values for JSON. Bytes are `{"base64": …}`, decimals are text, and other logical types keep the value
of their base type. A union is the value of its branch.

`search` returns values for conditions. It runs a walk: code that is compiled from the schema, which finds the spans at
one path. A walk skips all other values, and ends after the last possible hit, so it does not detect damage after that.
Each record has its own function. Arrays and maps share the function of the record around them, except inside other
arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.cooperative import yield_point, yielding, yielding_range
from kproxy.rules.filter.record_fields import EVERY, MOST_LOOKS, Step, UnreadableRecord

from .avro_types import (
    DEEPEST,
    MOST_DATUM,
    DatumReader,
    Node,
    SchemaParser,
    at_path,
    check_size,
    cut_datum,
    read_datum,
    read_raw,
    text,
)

Span = tuple[int, int, int]
"""Number of a type, and the bytes of its value in the datum."""
SHORT = tuple(1 + (n >> 1) if n < 128 and not n & 1 else 0 for n in range(256))
"""Bytes of a string by the first byte of its length; 0 for a long or a negative length."""
MOST_COMPILED_FIELDS = 1000
"""Maximum types of a schema for which walks are compiled: compiling takes some 20 µs a type."""
MOST_SEARCHES = 64
DEEPEST_LOOP = 2
"""Loops in one function, which Python limits to 20."""


class AvroSchema:
    """Schema from its text. `references`: texts of the schemas whose types it uses, each after those that it uses
    itself. `name`: full name of its type. Raises SchemaError."""

    def __init__(self, text: str | bytes, references: Iterable[str | bytes] = ()) -> None:
        parser = SchemaParser()
        for one in references:
            parser.read(one)
        self.root = parser.read(text)
        self.name = self.root.name or self.root.kind
        self.fields = parser.count
        self._searches: BoundedMap[tuple[Step, ...], Callable[[bytes], Iterable[Any]]] = BoundedMap(MOST_SEARCHES)

    def decode(self, data: bytes) -> Any:
        """Return the value of a datum, for JSON. Raises UnreadableRecord."""
        return read_datum(self.root, data)

    def search(self, steps: tuple[Step, ...]) -> Callable[[bytes], Iterable[Any]]:
        """Return the function that finds the values at a path of a datum. It raises UnreadableRecord."""
        if steps not in self._searches:
            if self.fields > MOST_COMPILED_FIELDS:
                root = self.root
                self._searches[steps] = lambda data: at_path(read_datum(root, data, plain=False), steps)
            else:
                self._searches[steps] = compile_search(self.root, steps)
        return self._searches[steps]


class AvroWalk:
    """Compiled walk of one path. `types`: of the values that it can find."""

    def __init__(self, root: Node, steps: tuple[Step, ...]) -> None:
        writer = WalkWriter()
        start = writer.function(root, steps, tail=True)
        source = "\n".join(writer.write())
        names: dict[str, Any] = {
            "SHORT": SHORT, "skip_long": skip_long, "skip_bytes": skip_bytes, "read_raw": read_raw, "text": text,
            "open_block": open_block, "yielding_range": yielding_range, "wrong": wrong, "check": check,
            "check_size": check_size,
        }  # fmt: skip
        exec(compile(source, "<avro walk>", "exec"), names)  # source has names and numbers of kproxy only
        self.types = writer.types
        self._walk: Callable[[bytes, int, int, list[Span]], int] = names[start]

    def run(self, data: bytes) -> list[Span]:
        """Return the hits in their order. Raises UnreadableRecord."""
        if len(data) > MOST_DATUM:
            raise UnreadableRecord(f"expected a datum of at most {MOST_DATUM} bytes, got {len(data)}")
        hits: list[Span] = []
        try:
            end = self._walk(data, 0, 0, hits)
        except IndexError:
            raise cut_datum(data) from None
        if end > len(data):
            raise cut_datum(data)
        return hits


def compile_search(root: Node, steps: tuple[Step, ...]) -> Callable[[bytes], Iterable[Any]]:
    """Return the function that finds the values at a path of a datum, as `AvroSchema.search`."""
    walk = AvroWalk(root, steps)
    run, types = walk.run, walk.types

    def read(data: bytes) -> Iterable[Any]:
        return [
            data[start + 1 : end].decode("utf-8", "replace")
            if types[number].kind == "string" and data[start] < 128
            else value_of(types[number], data, start, end)
            for number, start, end in yielding(run(data))
        ]

    return read


def value_of(node: Node, data: bytes, start: int, end: int) -> Any:
    """Return a value for conditions. Arrays, maps and records are empty tuples if empty, otherwise have one element."""
    if node.kind in ("array", "map"):
        return (data[start:end],) if read_raw(data, start)[0] else ()
    if node.kind == "record":
        return (data[start:end],) if node.parts else ()
    return DatumReader(data, start, plain=False).scalar(node)


class WalkWriter:
    """Writer of the functions of one walk: `def f0(data, p, d, hits)`, which return the position after the value."""

    def __init__(self) -> None:
        self.names: dict[tuple[int, tuple[Step, ...] | None, bool], str] = {}
        self.pending: list[tuple[str, Node, tuple[Step, ...] | None, bool]] = []
        self.types: list[Node] = []
        self.lines: list[str] = []
        self.locals = 0

    def function(self, node: Node, steps: tuple[Step, ...] | None, *, tail: bool) -> str:
        """Return the name of the function that walks a value. `steps`: None: no hits in it. `tail`: nothing follows."""
        key = id(node), steps, tail
        if key not in self.names:
            self.names[key] = f"f{len(self.names)}"
            self.pending.append((self.names[key], node, steps, tail))
        return self.names[key]

    def write(self) -> list[str]:
        while self.pending:
            name, node, steps, tail = self.pending.pop()
            self.lines += [f"def {name}(data, p, d, hits):", f" if d > {DEEPEST}: wrong(d)"]
            self.value(node, steps, tail, 1, 0, outer=True)
            self.lines.append(" return p")
        return self.lines

    def add(self, depth: int, *lines: str) -> None:
        self.lines += [f"{' ' * depth}{line}" for line in lines]

    def value(
        self, node: Node, steps: tuple[Step, ...] | None, tail: bool, at: int, loops: int, *, outer: bool = False
    ) -> None:
        """Write the walk of one value. `at`: indentation. `outer`: the value is that of the function."""
        if steps == () and node.kind != "union":
            self.types.append(node)
            self.locals += 1
            start, number = f"s{self.locals}", len(self.types) - 1
            self.add(at, f"{start} = p")
            self.value(node, None, False, at, loops)
            self.add(at, f"hits.append(({number}, {start}, p))")
            return
        if steps is None and node.size is not None:
            self.add(at, f"p += {node.size}")
            return
        match node.kind:
            case "union":
                self.union(node, steps, tail, at, loops)
            case "record" | "array" | "map" if not outer and (node.kind == "record" or loops >= DEEPEST_LOOP):
                self.add(at, f"p = {self.function(node, steps, tail=tail)}(data, p, d + 1, hits)")
            case "record":
                self.record(node, steps, tail, at, loops)
            case "array" | "map":
                self.loop(node, steps, tail, at, loops)
            case "string" | "bytes":
                self.add(at, "n = SHORT[data[p]]", "p = p + n if n else skip_bytes(data, p)")
            case _:
                size = node.size
                self.add(
                    at, f"p += {size}" if size is not None else "p = p + 1 if data[p] < 128 else skip_long(data, p)"
                )

    def union(self, node: Node, steps: tuple[Step, ...] | None, tail: bool, at: int, loops: int) -> None:
        self.locals += 1
        name = f"u{self.locals}"
        self.add(at, f"{name}, p = read_raw(data, p)" if len(node.parts) > 64 else f"{name} = data[p]; p += 1")
        word, numbers = "if", sorted(range(len(node.parts)), key=lambda n: node.parts[n].kind == "null")
        for number in numbers:  # null comes last, as values are more frequent
            part = node.parts[number]
            self.add(at, f"{word} {name} == {2 * number}:")
            self.value(part, steps, tail, at + 1, loops)
            self.add(at + 1, "pass")
            word = "elif"
        self.add(at, f"else: wrong({name})")

    def record(self, node: Node, steps: tuple[Step, ...] | None, tail: bool, at: int, loops: int) -> None:
        wanted = steps[0] if steps else None
        if tail and steps is not None and wanted not in node.names:
            return
        fixed = 0  # bytes to skip at once
        for name, part in zip(node.names, node.parts, strict=True):
            here = steps[1:] if steps and name == wanted else None
            if here is None and part.size is not None:
                fixed += part.size
                continue
            if fixed:
                self.add(at, f"p += {fixed}")
                fixed = 0
            self.value(part, here, tail and here is not None, at, loops)
            if here is not None and tail:
                return
        if fixed:
            self.add(at, f"p += {fixed}")

    def loop(self, node: Node, steps: tuple[Step, ...] | None, tail: bool, at: int, loops: int) -> None:
        """Write the walk of an array or map."""
        self.locals += 1
        count, number, end = f"n{self.locals}", f"i{self.locals}", f"e{self.locals}"
        opened = f"{count}, p, {end} = open_block(data, p)"
        closed = f"if {end} is not None: check_size(p, {end})", opened
        item, wanted = node.parts[0], steps[0] if steps else None
        is_map = node.kind == "map"
        rest = steps[1:] if steps else ()
        if wanted is None or isinstance(wanted, str) != is_map or not can_hit(item, rest):
            if tail and steps is not None:
                return
            self.add(at, opened, f"while {count}:")
            if item.size is not None and not is_map:
                self.add(at + 1, f"p += {count} * {item.size}")
            else:
                self.add(at + 1, f"check({count}, data, p)", f"for _ in yielding_range({count}):")
                if is_map:
                    self.add(at + 2, "n = SHORT[data[p]]", "p = p + n if n else skip_bytes(data, p)")
                self.value(item, None, False, at + 2, loops + 1)
            self.add(at + 1, *closed)
            return
        self.add(
            at,
            f"{number} = len(hits)" if is_map else f"{number} = 0",
            opened,
            f"while {count}:",
        )
        if item.size == 0 and not is_map and wanted != EVERY:  # there can be any number of items without bytes
            self.add(at + 1, f"if {number} <= {wanted} < {number} + {count}:")
            self.value(item, rest, False, at + 2, loops)
            self.add(at + 2, "pass")
            self.add(at + 1, f"{number} += {count}", *closed)
            return
        if item.size != 0 or is_map:
            self.add(at + 1, f"check({count}, data, p)")
        self.add(at + 1, f"for _ in yielding_range({count}):", f" if len(hits) > {MOST_LOOKS}: wrong(-1)")
        inner = at + 2
        if is_map:
            self.locals += 1
            key = f"k{self.locals}"
            # of equal names, the last one counts
            self.add(inner, f"{key}, p = read_raw(data, p)", f"if {key} & 1: wrong({key})", f"{key} = p + ({key} >> 1)",
                     f"if text(data[p:{key}]) == {wanted!r}:", f" p = {key}", f" del hits[{number}:]")  # fmt: skip
            self.value(item, rest, False, inner + 1, loops + 1)
            self.add(inner, "else:", f" p = {key}")
            self.value(item, None, False, inner + 1, loops + 1)
        elif wanted == EVERY:
            self.value(item, rest, False, inner, loops + 1)
        else:
            self.add(inner, f"if {number} == {wanted}:")
            self.value(item, rest, tail, inner + 1, loops + 1)
            if tail:
                self.add(inner + 1, "return p")
            self.add(inner, "else:")
            self.value(item, None, False, inner + 1, loops + 1)
            self.add(inner + 1, "pass")
        if not is_map:
            self.add(inner, f"{number} += 1")
        self.add(at + 1, *closed)


def can_hit(node: Node, steps: tuple[Step, ...]) -> bool:
    """Return True if a value of this type can have a value at the path."""
    if not steps:
        return True
    match node.kind:
        case "union":
            return any(can_hit(part, steps) for part in node.parts)
        case "record":
            at = node.names.index(str(steps[0])) if steps[0] in node.names else None
            return at is not None and can_hit(node.parts[at], steps[1:])
        case "array" | "map":
            return isinstance(steps[0], str) == (node.kind == "map") and can_hit(node.parts[0], steps[1:])
    return False


def wrong(number: int) -> None:
    """Raise the error for a branch that does not exist, a negative length, too many levels or too many hits."""
    raise UnreadableRecord(
        f"expected at most {MOST_LOOKS} values at a path" if number == -1
        else f"expected a datum of at most {DEEPEST} levels, or a branch of a union, got {number}"
    )  # fmt: skip


def check(count: int, data: bytes, p: int) -> None:
    """Check that items of at least one byte fit. Raises UnreadableRecord."""
    if count > len(data) - p:
        raise cut_datum(data)


def skip_long(data: bytes, p: int) -> int:
    return read_raw(data, p)[1]


def skip_bytes(data: bytes, p: int) -> int:
    raw, p = read_raw(data, p)
    if raw & 1:
        wrong(raw)
    return p + (raw >> 1)


def open_block(data: bytes, p: int) -> tuple[int, int, int | None]:
    """Return the number of items of the next block, their position, and their end if the block has a size in bytes.
    Without items: the position after the array or map."""
    # Sizes are checked, not trusted: most consumers ignore them, so a wrong one would hide items from conditions.
    yield_point()
    raw, p = read_raw(data, p)
    if not raw & 1:
        return raw >> 1, p, None
    size, p = read_raw(data, p)
    return (raw + 1) >> 1, p, p + ((size >> 1) ^ -(size & 1))
