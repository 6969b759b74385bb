"""JSON with masked fields, against masks of the values that `json` reads.

- the result has the values of the input, except masked ones; without a masked value, it is the input
- no text of a masked place is in the result, not even of a duplicate name
- JSON that `json` cannot read is unreadable
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kproxy.rules.content.masks import Fixed, JsonMasks
from kproxy.rules.filter.record_fields import EVERY, Step, UnreadableRecord
from tests.lab.fuzz.feed import Feed

WORDS = (b'{"a":', b'"b":', b"[", b"]", b"}", b'"odd name":', b"\\u0061", b'"', b"null", b",", b"s3cret")
PATHS: tuple[tuple[Step, ...], ...] = (
    ("a",),
    ("a", "b"),
    ("a", EVERY, "b"),
    (EVERY,),
    (0, "a"),
    ("odd name", "a", "b"),
)
SECRET = "s3cret"
MASKED = "***"


def seeds() -> list[bytes]:
    trees = [(("a", (("b", "x"), ("c", [1]))), ("a", "y")), [(("a", 1),), None], (("odd name", (("a", ()),)),)]
    return [bytes([number]) + written(tree, [PATHS[number]]) for tree in trees for number in range(len(PATHS))]


def check(data: bytes) -> None:
    feed = Feed(data)
    path = PATHS[feed.below(len(PATHS))]
    compare(feed.rest(), [path])


def compare(data: bytes, paths: Sequence[tuple[Step, ...]]) -> None:
    try:
        before = json.loads(readable(data), parse_constant=fail)
    except (ValueError, RecursionError):
        before = Unreadable
    try:
        expected = Unreadable if before is Unreadable else masked(before, paths)
    except Unreadable:
        expected = Unreadable
    try:
        after = JsonMasks([(path, Fixed(MASKED)) for path in paths]).apply(data)
    except UnreadableRecord:
        return  # kproxy is stricter than `json`, as for lone surrogates and limits
    assert expected is not Unreadable, data
    assert json.loads(readable(after)) == expected
    if is_plain(data) and before == expected:
        assert after == data
    for path in paths:
        for text in texts_at(json.loads(readable(after), object_pairs_hook=Pairs), path):
            assert text == MASKED, data


class Unreadable(Exception):
    """Value of another type on a path."""


class Pairs(list[tuple[str, Any]]):
    """Members of an object in their order, with duplicates."""


def readable(data: bytes) -> str:
    """Return text for `json`. Strings that are not masked may have invalid UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def fail(constant: str) -> None:
    raise ValueError(constant)


def is_plain(data: bytes) -> bool:
    """Return True if no object has duplicate names, and no name has an escape."""
    found = True

    def pairs(members: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found and len(dict(members)) == len(members)

    json.loads(readable(data), object_pairs_hook=pairs)
    return found and b"\\" not in data


def masked(value: Any, paths: Sequence[tuple[Step, ...]]) -> Any:
    """Return a value with MASKED at these paths. Raises Unreadable for another type on a path."""
    if () in paths:
        return MASKED
    if not paths or value is None:
        return value
    steps = [path[0] for path in paths]
    if isinstance(value, dict) and any(isinstance(step, str) for step in steps):
        return {name: masked(one, below(paths, name)) for name, one in value.items()}
    if isinstance(value, list) and any(isinstance(step, int) for step in steps):
        return [masked(one, below(paths, index)) for index, one in enumerate(value)]
    raise Unreadable


def below(paths: Sequence[tuple[Step, ...]], step: Step) -> list[tuple[Step, ...]]:
    return [path[1:] for path in paths if path[0] == step or (path[0] == EVERY and isinstance(step, int))]


def texts_at(value: Any, path: tuple[Step, ...]) -> list[Any]:
    """Return the values at a path, also those of duplicate names."""
    if not path:
        return [value]
    if isinstance(value, Pairs):
        return [text for name, one in value if name == path[0] for text in texts_at(one, path[1:])]
    if isinstance(value, list):
        return [t for i, one in enumerate(value) if path[0] in (i, EVERY) for t in texts_at(one, path[1:])]
    return []


def written(tree: Any, paths: Sequence[tuple[Step, ...]], *, escaped: bool = False) -> bytes:
    """Return a tree as JSON. Tuples are objects as pairs, with duplicates. Values at the paths are secrets."""
    return _written(tree, paths, escaped=escaped).encode()


def _written(tree: Any, paths: Sequence[tuple[Step, ...]], *, escaped: bool) -> str:
    if () in paths:
        return json.dumps(SECRET)
    if isinstance(tree, tuple):
        members = [
            f"{json.dumps(name) if not escaped else quoted(name)}: {_written(one, below(paths, name), escaped=escaped)}"
            for name, one in tree
        ]
        return "{" + ", ".join(members) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(_written(one, below(paths, i), escaped=escaped) for i, one in enumerate(tree)) + "]"
    return json.dumps(tree)


def quoted(name: str) -> str:
    return '"' + "".join(f"\\u{ord(character):04x}" for character in name) + '"'
