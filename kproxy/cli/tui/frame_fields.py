"""Fields of a frame from the view's API: a tree of lines with byte positions, and YAML for an editor.

Invalid steps in an API response are left out. The YAML has one line for each value with its path. Only changed lines
are sent as edits, so unchanged fields keep their bytes. An array grows by a repeated line with a higher index.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from kproxy.base.errors import InputError, plural
from kproxy.base.terminal import printable
from kproxy.cli.show import key_or_value

MOST_TEXT = 200
"""Characters of a value in one line."""


@dataclass(frozen=True, slots=True)
class FrameField:
    """Line of a frame's tree. Its bytes are `[start, end)`; both are 0 for a name above other fields."""

    depth: int
    name: str
    text: str
    start: int = 0
    end: int = 0
    path: str = ""
    changed: bool = False


@dataclass(frozen=True, slots=True)
class TerminalFrame:
    """Frame with its fields, its bytes, and `notes` about missing or overwritten parts."""

    side: str = "client"
    size: int = 0
    data: bytes = b""
    fields: Sequence[FrameField] = ()
    notes: Sequence[str] = field(default_factory=tuple)


def frame_of(said: Any, changed: frozenset[str] = frozenset()) -> TerminalFrame | None:
    """Return a frame of an API response, None for any other JSON. `changed`: paths that differ on the other side."""
    if not isinstance(said, Mapping):
        return None
    try:
        data = b64decode(said.get("data") or "")
    except (ValueError, TypeError):
        data = b""
    size = said.get("bytes")
    side = str(said.get("side") or "client")
    return TerminalFrame(side, size if isinstance(size, int) else len(data), data,
                      tuple(fields_of(said.get("steps"), changed)), tuple(notes_of(said)))  # fmt: skip


def notes_of(said: Mapping[str, Any]) -> Iterator[str]:
    """Yield the missing parts of a frame, with the reason for each."""
    size, kept = said.get("bytes"), said.get("kept")
    if isinstance(size, int) and isinstance(kept, int) and size - 4 > kept:
        why = said.get("withheld")
        yield f"{plural(size - 4 - kept, 'byte')} {f'withheld: {why}' if why else 'not kept'}"
    elif said.get("withheld"):
        yield f"overwritten with *: {said['withheld']}"
    if said.get("decode_error"):
        yield f"decode error: {said['decode_error']}"
    if isinstance(said.get("next"), int):
        yield f"only the first {said['next']} fields are shown"


def fields_of(steps: Any, changed: frozenset[str]) -> Iterator[FrameField]:
    """Yield the lines of a tree: a name for each struct and element, followed by its fields."""
    parents: list[str] = []
    for step in steps if isinstance(steps, list) else ():
        match step:
            case [int() as start, int() as end, _, str() as path, str() as what, _, value, *names]:
                pass
            case _:
                continue
        *above, last = path.replace("[", ".[").lstrip(".").split(".")
        for depth, parent in enumerate(above):
            if above[: depth + 1] != parents[: depth + 1]:
                yield FrameField(depth, parent, "")
        parents = [*above, last]
        yield FrameField(len(above), last, value_text(what, value, names), start, end, path, path in changed)


def value_text(what: str, value: Any, names: Sequence[Any] = ()) -> str:
    """Return a step's value for one line. `names`: meanings of a number, if known."""
    match what:
        case "count":
            if not isinstance(value, int) or value < 0:
                return "null"
            return plural(value, "element")
        case "present":
            return "present" if value else "null"
        case "tags":
            return plural(value, "tagged field")
        case "tag":
            return f"tag {value}"
        case "batch" if isinstance(value, Mapping):
            return batch_text(value)
        case "record" if isinstance(value, Mapping):
            return f"offset {value.get('offset')}"
        case "header" if isinstance(value, Mapping):
            return f"{json.dumps(value.get('name'), ensure_ascii=False)}: {bytes_text(value)}"
    if isinstance(value, Mapping) and isinstance(value.get("bytes"), int):
        return bytes_text(value)
    text = json.dumps(value, ensure_ascii=False)
    return " ".join((text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…", *map(str, names)))


def bytes_text(value: Mapping[str, Any]) -> str:
    """Return the size of a bytes value, or its text if it is packed and so has no place in the frame."""
    size, data = value.get("bytes"), value.get("data")
    if size is None:
        return "null"
    if isinstance(data, str) and data:
        try:
            return key_or_value(b64decode(data))[:MOST_TEXT]
        except ValueError:
            pass
    return plural(size, "byte") if size else "empty"


def batch_text(batch: Mapping[str, Any]) -> str:
    """Return the header of a batch as text: offsets, records, codec, producer."""
    if "cut" in batch:
        return f"the beginning of a batch, {batch['cut']} bytes"
    if "count" not in batch:
        return f"offset {batch.get('offset')}, magic {batch.get('magic')}, {batch.get('codec')}"
    said = [
        f"offset {batch.get('offset')} to {batch.get('last_offset')}",
        plural(batch["count"], "record"),
        f"{batch.get('codec')}",
    ]
    if isinstance(batch.get("producer_id"), int) and batch["producer_id"] >= 0:
        said.append(
            f"producer {batch['producer_id']} epoch {batch.get('producer_epoch')} sequence {batch.get('base_sequence')}"
        )
    said += [word for word in ("transactional", "control") if batch.get(word)]
    return ", ".join(said)


LONGEST_VALUE = 65_536
"""Bytes of the longest field that is edited as text."""
HELP = """\
# Change values, save and leave: kproxy checks them, and `a` resumes the frame with them. Paths stay as they are, but a
# line may be repeated with the next number in its brackets, where an array is to get an element more. Bytes are
# written as text, or as hex:0a0b.
"""


def values_of(held: Any) -> dict[str, Any]:
    """Return the values of a held frame by path, in the form of the API: those of its body, and the keys, values and
    headers of its records."""
    found: dict[str, Any] = {}
    frame = held.get("frame") if isinstance(held, Mapping) else None
    if not isinstance(frame, Mapping):
        return found
    data, steps = data_of(frame.get("data")), frame.get("steps")
    partitions = iter(held["records"] if isinstance(held.get("records"), list) else ())
    for step in steps if isinstance(steps, list) else ():
        match step:
            case [int(), int() as end, _, str() as path, "value", str() as kind, value, *_]:
                pass
            case _:
                continue
        size = value.get("bytes") if isinstance(value, Mapping) else None
        if kind.endswith("RECORDS"):
            if size:
                found |= record_values(path, next(partitions, None))
        elif isinstance(size, int):
            if size <= LONGEST_VALUE:
                found[path] = text_of(data[end - size : end])
        elif not path.startswith("header.") and not isinstance(value, Mapping):
            found[path] = value
    return found


def record_values(path: str, partition: Any) -> dict[str, Any]:
    """Return the editable values of one partition's records by path. The index counts records over all batches, without
    control batches. Truncated values are left out."""
    found: dict[str, Any] = {}
    number = 0
    batches = partition.get("batches") if isinstance(partition, Mapping) else None
    for batch in batches if isinstance(batches, list) else ():
        if not isinstance(batch, Mapping) or batch.get("control"):
            continue
        for record in batch.get("records") or ():
            here = f"{path}[{number}]"
            for name in ("key", "value"):
                data = None if record.get(name) is None else data_of(record[name])
                if data is None or len(data) == record.get(f"{name}_bytes"):
                    found[f"{here}.{name}"] = None if data is None else text_of(data)
            found[f"{here}.headers"] = [
                {"key": name, "value": None if data is None else text_of(data_of(data))}
                for name, data in record.get("headers") or ()
            ]
            number += 1
        if not isinstance(batch.get("omitted"), int):
            break
        number += batch["omitted"]
    return found


def data_of(encoded: Any) -> bytes:
    """Return the bytes of a base64 text, b"" for an invalid one."""
    try:
        return b64decode(encoded)
    except (ValueError, TypeError):
        return b""


def text_of(data: bytes) -> str:
    """Return bytes in the API's form: as text, or as `hex:0a0b` if they are not printable UTF-8."""
    text = data.decode("utf-8", "replace")
    plain = text.encode() == data and printable(text) == text and not text.startswith("hex:")
    return text if plain else f"hex:{data.hex()}"


def as_yaml(heading: str, values: Mapping[str, Any]) -> str:
    """Return values as YAML below a comment; unprintable characters are escaped."""
    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, width=10_000)
    if printable(text) != text:
        text = yaml.safe_dump(dict(values), sort_keys=False, width=10_000)
    return f"# {printable(heading)}\n{HELP}{text}"


def changes(text: str, before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return changed and added values as `{"path", "value"}` each. Raises InputError for missing paths and other
    YAML."""
    try:
        after = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"expected YAML, got an error: {' '.join(str(error).split())}") from None
    if not isinstance(after, Mapping):
        raise InputError("expected lines such as `path: value`")
    gone = [path for path in before if path not in after]
    if gone:
        raise InputError(f"{gone[0]} is missing: fields cannot be taken away here")
    return [
        {"path": str(path), "value": value}
        for path, value in after.items()
        if path not in before or value != before[path] or type(value) is not type(before[path])
    ]
