"""The fields of a held frame as YAML for an editor, and what was changed in it.

Strategy: one line for each value, by its path, so that what changed is told by comparing, and sent as changes: all that
is not touched leaves as the bytes that came. Nobody has to write a path anew: a line may be repeated with a higher
number, where an array is to grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from kproxy.errors import InputError
from kproxy.terminal import printable

HELP = """\
# Change values, save and leave: kproxy checks them, and `a` resumes the frame with them. Paths stay as they are, but a
# line may be repeated with the next number in its brackets, where an array is to get an element more.
"""


def values_of(frame: Any) -> dict[str, Any]:
    """Return the values of a frame's body by their paths."""
    found: dict[str, Any] = {}
    steps = frame.get("steps") if isinstance(frame, Mapping) else None
    for step in steps if isinstance(steps, list) else ():
        match step:
            case [_, _, _, str() as path, "value", _, value, *_] if not path.startswith("header."):
                found[path] = value
    return found


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
