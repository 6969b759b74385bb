"""APIs and versions that a rule selects, found in what was written, for checks when it loads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kproxy.rules.document.ranges import parse_range
from kproxy.rules.document.source import Where
from kproxy.wire.table import schema

from .selected import keys_of


class SelectedVersions(NamedTuple):
    """Versions that are selected of one API.

    `where`: the line that selects it. `by_name`: it alone is meant there; else a pattern stands for it and others.
    """

    api: schema.Api
    versions: tuple[int, ...]
    where: Where
    by_name: bool


def chosen(raw: dict[Any, Any]) -> list[SelectedVersions]:
    """Return the APIs that `match: {api: …}` selects; none if it selects no API, as far as it can be read.

    Mistakes in the selectors themselves are reported by their own types.
    """
    match = raw.get("match")
    if not isinstance(match, dict) or match.get("api") is None:
        return []
    listed = isinstance(match["api"], list)
    texts = match["api"] if listed else [match["api"]]
    selected = []
    for index, text in enumerate(texts):
        where = ("match", "api", index) if listed else ("match", "api")
        keys = keys_or_none(text)
        by_name = len(keys) == 1 and (not isinstance(text, str) or text.isdigit() or text in schema.names())
        for key in sorted(keys):
            api = schema.load(key)
            selected.append(SelectedVersions(api, versions_of(api, match.get("version")), where, by_name))
    return selected


def keys_or_none(text: Any) -> frozenset[int]:
    try:
        return keys_of(text) if isinstance(text, str | int) and not isinstance(text, bool) else frozenset()
    except ValueError:
        return frozenset()


def versions_of(api: schema.Api, selected: Any) -> tuple[int, ...]:
    """Return the versions of this API that a `version` selector leaves."""
    if selected is None:
        return tuple(api.versions)
    try:
        ranges = [parse_range(one) for one in (selected if isinstance(selected, list) else [selected])]
    except ValueError:
        return tuple(api.versions)
    return tuple(version for version in api.versions if any(version in one for one in ranges))


def spans(versions: Iterable[int]) -> str:
    """Return versions in words, such as `0-2,5`, from ascending numbers."""
    ranges: list[tuple[int, int]] = []
    for version in versions:
        if ranges and version == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], version
        else:
            ranges.append((version, version))
    return str(schema.Versions(tuple(ranges)))
