"""Kafka releases: the versions of each API that their brokers support, from the table's `releases:` lines.

Source: message definitions of each release from 2.8 on, before that the schemas in the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from . import schema
from .schema import Versions

RELEASES: Final = (
    "0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8",
    "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2", "4.3", "4.4",
)  # fmt: skip
"""From the first that answers ApiVersions (KIP-35) to the newest of the table."""
_WRITTEN = re.compile(r"v?(\d+(?:\.\d+)*)(?:\.x|\.\*|-SNAPSHOT|-rc\d+)?", re.IGNORECASE)


def supported(release: str) -> Mapping[int, tuple[int, int]]:
    """Return, by API key, the first and last version that brokers of this release list by default.

    APIs that they lack are missing. Raises KeyError for a release outside of `RELEASES`.
    """
    if release not in RELEASES:
        raise KeyError(release)
    return _supported(release)


@cache
def _supported(release: str) -> Mapping[int, tuple[int, int]]:
    versions = {}
    for api in schema.apis():
        has = _at(api.releases, release)
        preview = _at(api.previews, release) or schema.NONE
        final = [version for version in has or () if version not in preview and version not in api.unstable]
        if final:
            versions[api.key] = final[0], final[-1]
    return versions


def _at(entries: Mapping[str, Versions | None], release: str) -> Versions | None:
    """Return the last entry up to this release; None without one."""
    past = [has for since, has in entries.items() if RELEASES.index(since) <= RELEASES.index(release)]
    return past[-1] if past else None


def parse_release(text: str) -> str:
    """Return the release line: `2.8` for `2.8`, `v2.8`, `2.8.1` and `2.8.x`.

    Raises ValueError with the nearest release for an unknown one.
    """
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'expected a Kafka release such as {RELEASES[-1]}, got text "{text}"')
    numbers = tuple(map(int, match[1].split(".")))
    wanted = numbers[: 3 if numbers[0] == 0 else 2]
    among = [release for release in RELEASES if _numbers(release)[: len(wanted)] == wanted]
    if len(among) == 1:
        return among[0]
    if among:
        raise ValueError(f'"{text}" may be any of {", ".join(among)}')
    if wanted < _numbers(RELEASES[0]):
        raise ValueError(
            f'brokers of Kafka {text} do not support ApiVersions, the oldest release with it is "{RELEASES[0]}"'
        )
    older = [release for release in RELEASES if _numbers(release) < wanted]
    raise ValueError(
        f'no Kafka release {text} is known, nearest is "{older[-1]}"; known are {RELEASES[0]} to {RELEASES[-1]}'
    )


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
