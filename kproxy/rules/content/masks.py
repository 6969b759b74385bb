"""Masks: values that replace fields, and JSON with masked fields.

    masks = JsonMasks([(("customer", "email"), Keep(first=1, from_char="@")), (("notes", EVERY, "text"), NULL)])
    masks.apply(b'{"customer": {"email": "anna@example.com"}}')     # b'{"customer":{"email":"a***@example.com"}}'

A mask changes the JSON text of a value (`json`), or a whole key, value or header (`plain`). Its result never depends on
the type of the value in a way that shows more of it: an array or object is masked as a whole.

`JsonMasks` decodes only the objects and arrays on its paths. All other values keep their bytes. Of duplicate names on a
path, one masked value remains, since readers use different ones. UnreadableRecord is raised for invalid JSON, for a
value of another type on a path, and beyond a limit.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kproxy.base.cooperative import yield_now, yield_point, yielding
from kproxy.rules.filter.record_fields import (
    ARRAYS,
    BAD_JSON,
    DICTS,
    EVERY,
    LONG_JSON,
    MOST_MEMBERS,
    RecordView,
    Step,
    UnreadableRecord,
)

FILL = "*"
FILLS = 3  # a fixed number, so that the length of the value is not shown
HASH_DIGITS = 32
STRINGS = msgspec.json.Decoder(str)
encode = msgspec.json.encode


class Mask:
    """Method that replaces values. Override `text`, or both of `json` and `plain`. `adds`: it also gives a value to
    missing members of an object."""

    adds = False

    def text(self, text: str) -> str:
        """Return the masked text; `text` is that of a string, number or boolean."""
        raise NotImplementedError

    def whole(self, raw: bytes) -> str:
        """Return the masked text of an array or object."""
        return FILL * FILLS

    def json(self, raw: bytes) -> bytes:
        """Return the masked value of a valid JSON text without surrounding whitespace. null stays null."""
        first = raw[:1]
        if first == b'"':
            return encode(self.text(STRINGS.decode(raw)))
        if first in (b"{", b"["):
            return encode(self.whole(raw))
        return raw if raw == b"null" else encode(self.text(raw.decode()))

    def plain(self, data: bytes) -> bytes | None:
        """Return a masked key, value or header; None: null."""
        return self.text(data.decode("utf-8", "replace")).encode("utf-8", "replace")


class Fixed(Mask):
    """One value in the place of all others, null included. `value`: for JSON."""

    def __init__(self, value: Any) -> None:
        self.value, self.raw = value, encode(value)

    def json(self, raw: bytes) -> bytes:
        return self.raw

    def plain(self, data: bytes) -> bytes | None:
        if self.value is None:
            return None
        return self.value.encode() if isinstance(self.value, str) else self.raw


NULL = Fixed(None)


class Given(Fixed):
    """Value for a field that may be missing."""

    adds = True


class Keep(Mask):
    """Part of a text, with fill characters in the place of the rest. `first`, `last`: characters at both ends.
    `from_char`: from its last occurrence on; `to_char`: up to its first one. A text of which nothing would be masked is
    masked as a whole."""

    def __init__(
        self, first: int = 0, last: int = 0, from_char: str | None = None, to_char: str | None = None, fill: str = FILL
    ) -> None:
        self.first, self.last, self.from_char, self.to_char = first, last, from_char, to_char
        self.filled = fill * FILLS

    def text(self, text: str) -> str:
        start, end = self.first, len(text) - self.last
        if self.to_char is not None:
            start = max(start, text.find(self.to_char) + 1)
        if self.from_char is not None and (found := text.rfind(self.from_char)) >= 0:
            end = min(end, found)
        return text[:start] + self.filled + text[end:] if start < end else self.filled

    def whole(self, raw: bytes) -> str:
        return self.filled


class Hash(Mask):
    """HMAC-SHA-256 of a text, as hexadecimal digits: equal texts stay equal. Of arrays and objects, the JSON text."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    def digest(self, data: bytes) -> str:
        return hmac.digest(self.key, data, "sha256").hex()[:HASH_DIGITS]

    def text(self, text: str) -> str:
        return self.digest(text.encode("utf-8", "surrogatepass"))

    def whole(self, raw: bytes) -> str:
        return self.digest(raw)

    def plain(self, data: bytes) -> bytes | None:
        return self.digest(data).encode()


class MaskNode:
    """Masks below one place of a document. `mask`: for the whole value. `rest`: for all leaf values except those of
    `names`, `indexes` and `every`. `every`: for the elements of an array."""

    __slots__ = ("every", "indexes", "mask", "names", "rest")

    def __init__(self) -> None:
        self.mask: Mask | None = None
        self.rest: Mask | None = None
        self.names: dict[str, MaskNode] = {}
        self.indexes: dict[int, MaskNode] = {}
        self.every: MaskNode | None = None

    @property
    def adds(self) -> bool:
        return self.mask is not None and self.mask.adds

    def below(self, step: Step) -> MaskNode:
        if isinstance(step, str):
            return self.names.setdefault(step, MaskNode())
        if step != EVERY:
            return self.indexes.setdefault(step, MaskNode())
        if self.every is None:
            self.every = MaskNode()
        return self.every

    def add(self, steps: tuple[Step, ...], mask: Mask, *, leaves: bool = False) -> None:
        """Add a mask at a path. Masks that were added before take precedence. `leaves`: of an array or object, all leaf
        values are masked."""
        node = self
        for step in steps:
            if node.mask is not None:
                return
            node = node.below(step)
        if node.mask is None and node.rest is None:
            node.mask, node.rest = (None, mask) if leaves else (mask, None)

    def compiled(self, above: Mask | None = None) -> Apply:
        """Return the function that masks a value. `above`: mask of the leaf values."""
        if self.mask is not None:
            return self.mask.json
        rest = self.rest or above
        names = [(name, encode(name), node.compiled(rest), node.adds) for name, node in self.names.items()]
        indexes = [(index, node.compiled(rest)) for index, node in self.indexes.items()]
        every = None if self.every is None else self.every.compiled(rest)
        if rest is not None:
            return masked_leaves(rest, {name: apply for name, _, apply, _ in names}, dict(indexes), every)
        if not indexes and every is None:
            return masked_names(names)
        in_array = masked_items(indexes, every)
        if not names:
            return in_array
        in_object = masked_names(names)
        return lambda raw: (in_array if raw[:1] == b"[" else in_object)(raw)


Apply = Callable[[bytes], bytes | None]
"""Returns the masked JSON text of a value; None: unchanged."""


def masked_names(names: list[tuple[str, bytes, Apply, bool]]) -> Apply:
    """Return the function that masks members of an object."""

    def apply(raw: bytes) -> bytes | None:
        pause(raw)
        try:
            members = DICTS.decode(raw)
        except msgspec.ValidationError:
            return check_null(raw, "an object")
        changed = doubtful = False
        for name, text, below, adds in names:
            before = members.get(name)
            if before is None and not adds:
                continue
            after = below(b"" if before is None else bytes(before))
            if after is not None:
                members[name] = msgspec.Raw(after)
                changed = True
            elif not doubtful:
                doubtful = b"\\" in raw or raw.count(text) > 1
        pause(raw)
        return encode(members) if changed or (doubtful and has_duplicates(raw, members)) else None

    return apply


def masked_items(indexes: list[tuple[int, Apply]], every: Apply | None) -> Apply:
    """Return the function that masks elements of an array."""

    def apply(raw: bytes) -> bytes | None:
        pause(raw)
        try:
            items = ARRAYS.decode(raw)
        except msgspec.ValidationError:
            return check_null(raw, "an array")
        changed = False
        for index, below in indexes:
            if index < len(items) and (after := below(bytes(items[index]))) is not None:
                items[index] = msgspec.Raw(after)
                changed = True
        for index, item in yielding(enumerate(items)) if every is not None else ():
            if (after := every(bytes(item))) is not None:  # type: ignore[misc]
                items[index] = msgspec.Raw(after)
                changed = True
        pause(raw)
        return encode(items) if changed else None

    return apply


def masked_leaves(mask: Mask, names: dict[str, Apply], indexes: dict[int, Apply], every: Apply | None) -> Apply:
    """Return the function that masks all leaf values of an array or object. Some members and elements have a function
    of their own. Names of members stay."""
    others: dict[str, Apply] = {}

    def all_leaves(raw: bytes) -> bytes:
        return value(raw, others, {}, None)

    def value(raw: bytes, names: dict[str, Apply], indexes: dict[int, Apply], every: Apply | None) -> bytes:
        pause(raw)
        first = raw[:1]
        if first == b"{":
            members = DICTS.decode(raw)
            for name, member in members.items():
                before = bytes(member)
                after = names.get(name, all_leaves)(before)
                members[name] = msgspec.Raw(before if after is None else after)
            pause(raw)
            return encode(members)
        if first == b"[":
            items = list(map(bytes, ARRAYS.decode(raw)))
            for index, item in enumerate(items):
                after = indexes.get(index, every or all_leaves)(item)
                items[index] = msgspec.Raw(item if after is None else after)
            pause(raw)
            return encode(items)
        return mask.json(raw)

    return lambda raw: value(raw, names, indexes, every)


def pause(raw: bytes) -> None:
    """Let the driver run before a value is read or written: at once for a long one, otherwise after some values."""
    if len(raw) > LONG_JSON:
        yield_now()
    else:
        yield_point()


def check_null(raw: bytes, wanted: str) -> bytes | None:
    """Return None for null, which has no fields. Raises UnreadableRecord for any other type."""
    if raw == b"null":
        return None
    kinds = {b"{": "an object", b"[": "an array", b'"': "text"}
    raise UnreadableRecord(f"expected {wanted} on a masked path, got {kinds.get(raw[:1], 'another value')}")


def has_duplicates(raw: bytes, members: dict[str, msgspec.Raw]) -> bool:
    """Return True if an object has two members of one name. Also True for a name with escapes."""
    return msgspec.json.format(raw, indent=-1) != msgspec.json.format(encode(members), indent=-1)


class JsonMasks:
    """Masks of one document, by paths. Masks of earlier paths take precedence."""

    def __init__(self, masks: Iterable[tuple[tuple[Step, ...], Mask]] = (), root: MaskNode | None = None) -> None:
        self.root = root or MaskNode()
        for steps, mask in masks:
            self.root.add(steps, mask)
        self._apply = self.root.compiled()

    def apply(self, data: bytes) -> bytes:
        """Return the JSON text with masked values: `data` itself if it has none of the fields. Raises
        UnreadableRecord."""
        if len(data) > MOST_MEMBERS and data.count(b",") > MOST_MEMBERS:
            raise UnreadableRecord(f"expected JSON of at most {MOST_MEMBERS} members")
        try:
            after = self._apply(RecordView.checked(data).strip(b" \t\r\n"))
        except BAD_JSON:
            raise UnreadableRecord("expected JSON, got other data") from None  # messages never quote a value
        return data if after is None else after
