"""The fields of a held frame as YAML for an editor, and what was changed in it.

Strategy: one line for each value, by its path, so that what changed is told by comparing, and sent as changes: all that
is not touched leaves as the bytes that came. Nobody has to write a path anew: a line may be repeated with a higher
number, where an array is to grow.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import yaml

from kproxy.base.errors import InputError
from kproxy.base.terminal import printable

LONGEST_VALUE = 65_536
"""Bytes of a field that are edited as text."""
HELP = """\
# Change values, save and leave: kproxy checks them, and `a` resumes the frame with them. Paths stay as they are, but a
# line may be repeated with the next number in its brackets, where an array is to get an element more. Bytes are
# written as text, or as hex:0a0b.
"""


def values_of(held: Any) -> dict[str, Any]:
    """Return the values of a held frame's body by their paths, and of its records those of keys, values and headers, in
    the form in which they can be set."""
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
    """Return what can be set of the records of one partition; they are counted over its batches, without control
    batches. Values that were cut are left out."""
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
    """Return the bytes of a text in base64; none for what is no such text."""
    try:
        return b64decode(encoded)
    except (ValueError, TypeError):
        return b""


def text_of(data: bytes) -> str:
    """Return bytes as the API takes them: as text, or as `hex:0a0b` if they are no text that can be seen."""
    text = data.decode("utf-8", "replace")
    plain = text.encode() == data and printable(text) == text and not text.startswith("hex:")
    return text if plain else f"hex:{data.hex()}"


def as_yaml(heading: str, values: Mapping[str, Any]) -> str:
    """Return values as YAML below a comment; letters that cannot be seen are escaped."""
    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, width=10_000)
    if printable(text) != text:
        text = yaml.safe_dump(dict(values), sort_keys=False, width=10_000)
    return f"# {printable(heading)}\n{HELP}{text}"


def changes(text: str, before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what differs in an edited text, as `{"path", "value"}` each. Raises InputError for other YAML."""
    try:
        after = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"this is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(after, Mapping):
        raise InputError("this is no list of `path: value` lines")
    gone = [path for path in before if path not in after]
    if gone:
        raise InputError(f"{gone[0]} is missing: fields cannot be taken away here")
    return [
        {"path": str(path), "value": value}
        for path, value in after.items()
        if path not in before or value != before[path] or type(value) is not type(before[path])
    ]
