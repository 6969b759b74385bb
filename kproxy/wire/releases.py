"""Kafka releases: which versions of which APIs a broker of each has, from the table's `releases:` lines.

Taken from the sources of each release: message definitions from 2.8 on, before that the lists of schemas in the code.
"""

from __future__ import annotations

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


def supported(release: str) -> Mapping[int, tuple[int, int]]:
    """Return, by API key, the first and last version that brokers of this release list by default; APIs that they lack
    are not in it.

    Raises KeyError for what is not in `RELEASES`.
    """
    if release not in RELEASES:
        raise KeyError(release)
    return _supported(release)


@cache
def _supported(release: str) -> Mapping[int, tuple[int, int]]:
    found = {}
    for api in schema.apis():
        has = _at(api.releases, release)
        preview = _at(api.previews, release) or schema.NONE
        final = [version for version in has or () if version not in preview and version not in api.unstable]
        if final:
            found[api.key] = final[0], final[-1]
    return found


def _at(entries: Mapping[str, Versions | None], release: str) -> Versions | None:
    """Return the last entry up to this release, None if there is none."""
    past = [has for since, has in entries.items() if RELEASES.index(since) <= RELEASES.index(release)]
    return past[-1] if past else None
