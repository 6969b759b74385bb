"""Types of Avro schemas, and decoded values.

Schemas come from a registry and data from producers, so both have limits. A schema beyond a limit raises SchemaError,
a datum raises UnreadableRecord.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal

import msgspec

from kproxy.base.cooperative import yield_point, yielding
from kproxy.base.errors import KproxyError
from kproxy.rules.filter.record_fields import EVERY, MOST_LOOKS, Step, UnreadableRecord

MOST_SCHEMA = 1 << 20  # bytes of a schema's text
LONGEST_NAME = 255
"""Characters of a name or symbol: a decoded datum repeats names of fields up to MOST_VALUES times."""
MOST_FIELDS = 10_000  # types of a schema and of those that it refers to
DEEPEST = 64  # levels of a schema, and of a datum
MOST_VALUES = 20_000  # values of a decoded datum
MOST_DATUM = 1 << 20
LONGEST_DECIMAL = 512  # bytes
MOST_SCALE = 1000
MOST_FIXED = 1 << 20

Kind = Literal[
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", "record", "enum", "fixed", "array", "map",
    "union",
]  # fmt: skip
PRIMITIVES: Mapping[str, int | None] = {
    "null": 0, "boolean": 1, "int": None, "long": None, "float": 4, "double": 8, "bytes": None, "string": None,
}  # fmt: skip


class SchemaError(KproxyError):
    """Invalid schema, or one beyond a limit."""


class Node:
    """One type of a schema. `size`: bytes of each value; None if they differ. `parts`: types of the fields, branches
    or items. `names`: of the fields, or the symbols. `scale`: of decimals, otherwise None."""

    __slots__ = ("kind", "name", "names", "parts", "scale", "size")

    def __init__(self, kind: Kind, name: str = "", size: int | None = None) -> None:
        self.kind, self.name, self.size = kind, name, size
        self.parts: list[Node] = []
        self.names: list[str] = []
        self.scale: int | None = None


class SchemaParser:
    """Reader of schemas that use one another's types."""

    def __init__(self) -> None:
        self.named: dict[str, Node] = {}
        self.count = 0

    def read(self, text: str | bytes) -> Node:
        """Return the type of a schema. Raises SchemaError."""
        if len(text) > MOST_SCHEMA:
            raise SchemaError(f"expected a schema of at most {MOST_SCHEMA} bytes, got {len(text)}")
        try:
            written = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            if not isinstance(error, RecursionError) and str(text)[:1].isalpha():
                written = text if isinstance(text, str) else text.decode("utf-8", "replace")  # a name without quotes
            else:
                raise SchemaError(f"expected a schema in JSON, got {error}") from None
        return self.type(written, "", 0)

    def type(self, written: Any, space: str, depth: int) -> Node:
        """Return the type that a part of a schema describes. `space`: enclosing namespace. Raises SchemaError."""
        yield_point()
        self.count += 1
        if self.count > MOST_FIELDS:
            raise SchemaError(f"expected at most {MOST_FIELDS} types in a schema")
        if depth > DEEPEST:
            raise SchemaError(f"expected at most {DEEPEST} levels in a schema")
        if isinstance(written, str):
            return self.by_name(written, space)
        if isinstance(written, list):
            node = Node("union")
            node.parts = [self.type(one, space, depth + 1) for one in written]
            if not node.parts or any(one.kind == "union" for one in node.parts):
                raise SchemaError("expected branches in a union, which are not unions")
            return node
        if not isinstance(written, dict):
            raise SchemaError(f"expected a type, got {str(written)[:40]}")
        kind = written.get("type")
        match kind:
            case "record" | "error":
                return self.record(written, space, depth)
            case "enum":
                node = self.declare(Node("enum"), written, space)
                node.names = [self.short(one) for one in listed(written, "symbols")]
                return node
            case "fixed":
                return self.fixed(written, space)
            case "array" | "map":
                node = Node(kind)
                node.parts = [self.type(written.get("items" if kind == "array" else "values"), space, depth + 1)]
                return node
            case dict() | list():
                return self.type(kind, space, depth + 1)
            case str():
                return self.logical(self.by_name(kind, space), written)
        raise SchemaError(f"expected a type, got {str(kind)[:40]}")

    def by_name(self, name: str, space: str) -> Node:
        if name in PRIMITIVES:
            return Node(name, size=PRIMITIVES[name])  # type: ignore[arg-type]
        found = self.named.get(name if "." in name or not space else f"{space}.{name}") or self.named.get(name)
        if found is None:
            raise SchemaError(f"expected a known type, got {name[:200]}")
        return found

    def declare(self, node: Node, written: dict[str, Any], space: str) -> Node:
        """Give a type its full name, by which others can use it. Raises SchemaError."""
        name, own = written.get("name"), written.get("namespace", space)
        if not isinstance(name, str) or not name or not isinstance(own, str):
            raise SchemaError(f"expected a name of a {node.kind}, got {str(name)[:40]}")
        node.name = self.short(name if "." in name or not own else f"{own}.{name}")
        if node.name in self.named or node.name in PRIMITIVES:
            raise SchemaError(f"expected one type of a name, got {node.name[:200]} again")
        self.named[node.name] = node
        return node

    @staticmethod
    def short(name: Any) -> str:
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            raise SchemaError(f"expected names and symbols of at most {LONGEST_NAME} characters, got {str(name)[:40]}")
        return name

    def record(self, written: dict[str, Any], space: str, depth: int) -> Node:
        node = self.declare(Node("record"), written, space)
        inner = node.name.rpartition(".")[0]
        for one in yielding(listed(written, "fields")):
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise SchemaError(f"expected fields with a name in {node.name[:200]}, got {str(one)[:40]}")
            node.names.append(self.short(one["name"]))
            node.parts.append(self.type(one.get("type"), inner, depth + 1))
        if len(set(node.names)) < len(node.names):
            raise SchemaError(f"expected different fields in {node.name[:200]}, got one twice")
        sizes = [part.size for part in node.parts]  # a record that contains itself has no size yet
        node.size = None if None in sizes else sum(size for size in sizes if size is not None)
        return node

    def fixed(self, written: dict[str, Any], space: str) -> Node:
        node = self.declare(Node("fixed"), written, space)
        size = written.get("size")
        if type(size) is not int or not 0 <= size <= MOST_FIXED:
            raise SchemaError(f"expected a size of 0 to {MOST_FIXED} in {node.name[:200]}, got {str(size)[:40]}")
        node.size = size
        return self.logical(node, written)

    @staticmethod
    def logical(node: Node, written: dict[str, Any]) -> Node:
        """Note the scale of a decimal. An invalid logical type is ignored, as the specification says."""
        if written.get("logicalType") == "decimal" and node.kind in ("bytes", "fixed"):
            scale = written.get("scale", 0)
            if type(scale) is int and 0 <= scale <= MOST_SCALE:
                node.scale = scale
        return node


def listed(written: dict[str, Any], name: str) -> list[Any]:
    found = written.get(name)
    if not isinstance(found, list):
        raise SchemaError(f"expected a list of {name}, got {str(found)[:40]}")
    return found


def read_datum(root: Node, data: bytes, *, plain: bool = True) -> Any:
    """Return the value of a datum: for JSON with `plain`, otherwise for conditions. Raises UnreadableRecord."""
    if len(data) > MOST_DATUM:
        raise UnreadableRecord(f"expected a datum of at most {MOST_DATUM} bytes, got {len(data)}")
    reader = DatumReader(data, plain=plain)
    try:
        value = reader.value(root, 0)
    except (IndexError, struct.error):
        raise cut_datum(data) from None
    if reader.at != len(data):
        raise UnreadableRecord(f"expected a datum of {reader.at} bytes, got {len(data)}")
    return value


def cut_datum(data: bytes) -> UnreadableRecord:
    return UnreadableRecord(f"expected more bytes than the {len(data)} of the datum")


class DatumReader:
    """Position in a datum. Methods raise UnreadableRecord, IndexError and struct.error."""

    def __init__(self, data: bytes, at: int = 0, *, plain: bool = True) -> None:
        self.data, self.at, self.plain = data, at, plain
        self.left = MOST_VALUES

    def long(self) -> int:
        raw, self.at = read_raw(self.data, self.at)
        return (raw >> 1) ^ -(raw & 1)

    def take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if size < 0 or self.at > len(self.data):
            raise cut_datum(self.data)
        return self.data[start : self.at]

    def value(self, node: Node, depth: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise UnreadableRecord(f"expected a datum of at most {MOST_VALUES} values")
        match node.kind:
            case "record":
                check_depth(depth)
                yield_point()
                return {name: self.value(part, depth + 1) for name, part in zip(node.names, node.parts, strict=True)}
            case "union":
                return self.value(node.parts[branch(self.long(), node.parts)], depth)
            case "array":
                check_depth(depth)
                return [self.value(node.parts[0], depth + 1) for _ in self.items()]
            case "map":
                check_depth(depth)
                return {text(self.take(self.long())): self.value(node.parts[0], depth + 1) for _ in self.items()}
        return self.scalar(node)

    def items(self) -> Iterable[None]:
        """Yield once for each item of an array or map."""
        while count := self.long():
            size = self.long() if count < 0 else None
            start = self.at
            for _ in range(abs(count)):
                yield_point()
                yield
            if size is not None:
                check_size(self.at, start + size)

    def scalar(self, node: Node) -> Any:
        """Return a value without parts."""
        match node.kind:
            case "null":
                return None
            case "boolean":
                return self.take(1) != b"\0"
            case "int" | "long":
                return self.long()
            case "float":
                return self.number(float_text(struct.unpack("<f", self.take(4))[0]))
            case "double":
                return self.number(repr(struct.unpack("<d", self.take(8))[0]))
            case "string":
                return text(self.take(self.long()))
            case "enum":
                return node.names[branch(self.long(), node.names)]
        data = self.take(self.long() if node.size is None else node.size)
        if node.scale is not None:
            number = decimal(data, node.scale)
            return f"{number:f}" if self.plain else number
        return {"base64": b64encode(data).decode()} if self.plain else text(data)

    def number(self, shown: str) -> Any:
        """Return a floating-point number; text for one that JSON does not have."""
        if shown[-1] in "fn":
            return {"inf": "Infinity", "-inf": "-Infinity"}.get(shown, "NaN")
        return float(shown) if self.plain else Decimal(shown)


def check_depth(depth: int) -> None:
    if depth >= DEEPEST:
        raise UnreadableRecord(f"expected a datum of at most {DEEPEST} levels")


def check_size(at: int, end: int) -> None:
    """Check the end of a block of an array or map against its size in bytes. Raises UnreadableRecord."""
    if at != end:
        raise UnreadableRecord(f"expected a block of an array or map to end at byte {end}, got {at}")


def branch(number: int, among: list[Any]) -> int:
    """Return the number of a branch or a symbol. Raises UnreadableRecord if there is none."""
    if not 0 <= number < len(among):
        raise UnreadableRecord(f"expected a branch of a union or a symbol below {len(among)}, got {number}")
    return number


def read_raw(data: bytes, at: int) -> tuple[int, int]:
    """Return a long before the zig-zag decoding, and the position after it. Raises IndexError, UnreadableRecord."""
    raw = data[at]
    at += 1
    if raw < 128:
        return raw, at
    raw &= 127
    for shift in range(7, 70, 7):
        byte = data[at]
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            if raw >> 64:
                break
            return raw, at
    raise UnreadableRecord("expected a long of at most 64 bits")


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def decimal(data: bytes, scale: int) -> Decimal:
    if len(data) > LONGEST_DECIMAL:
        raise UnreadableRecord(f"expected a decimal of at most {LONGEST_DECIMAL} bytes, got {len(data)}")
    return Decimal(f"{int.from_bytes(data, 'big', signed=True)}E-{scale}")


def float_text(value: float) -> str:
    """Return the shortest text of a float of 32 bits."""
    if value - value == 0:
        for digits in (6, 7, 8):
            shown = f"{value:.{digits}g}"
            try:
                if struct.unpack("<f", struct.pack("<f", float(shown)))[0] == value:
                    return repr(float(shown))
            except OverflowError:  # rounded up beyond the largest float
                continue
    return repr(value)


def at_path(value: Any, steps: tuple[Step, ...]) -> list[Any]:
    """Return the values at a path of a value for conditions: an array, map or record as an empty tuple or `(text,)`."""
    found = [value]
    for step in steps:
        if isinstance(step, str):
            found = [one[step] for one in found if isinstance(one, dict) and step in one]
        elif step == EVERY:
            found = [item for one in found if isinstance(one, list) for item in one]
        else:
            found = [one[step] for one in found if isinstance(one, list) and step < len(one)]
        if len(found) > MOST_LOOKS:
            raise UnreadableRecord(f"expected at most {MOST_LOOKS} values at a path")
    return [(() if not one else ("",)) if isinstance(one, dict | list) else one for one in found]
