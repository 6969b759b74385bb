"""Kafka releases as users write them."""

from __future__ import annotations

import re

from kproxy.wire.releases import RELEASES

_WRITTEN = re.compile(r"v?(\d+(?:\.\d+)*)(?:\.x|\.\*|-SNAPSHOT|-rc\d+)?", re.IGNORECASE)


def parse_release(text: str) -> str:
    """Return the release line that is meant: `2.8`, `v2.8`, `2.8.1` and `2.8.x` are `2.8`.

    Raises ValueError, with the nearest one, for what is no release that kproxy knows.
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f'a Kafka release is wanted, such as {RELEASES[-1]}, found text "{text}"')
    numbers = tuple(map(int, found[1].split(".")))
    wanted = numbers[: 3 if numbers[0] == 0 else 2]
    among = [release for release in RELEASES if _numbers(release)[: len(wanted)] == wanted]
    if len(among) == 1:
        return among[0]
    if among:
        raise ValueError(f'"{text}" may be any of {", ".join(among)}')
    if wanted < _numbers(RELEASES[0]):
        raise ValueError(
            f'brokers of Kafka {text} cannot tell which versions they have, the oldest that can is "{RELEASES[0]}"'
        )
    older = [release for release in RELEASES if _numbers(release) < wanted]
    raise ValueError(
        f'no Kafka release {text} is known, nearest is "{older[-1]}"; known are {RELEASES[0]} to {RELEASES[-1]}'
    )


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
