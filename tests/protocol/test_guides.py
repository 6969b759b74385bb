"""The grammars of the two protocol guides, word for word.

Every block of the guide of Kafka 3.9 and of 3.6 is compared with what `grammar` prints, white space aside. What
differs is in `EXCEPTIONS`, with its reason, and has to differ: an exception that is no longer needed fails too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.protocol.table import schema
from kproxy.protocol.table.layout import grammar, header_grammar

SEEDS = Path(__file__).parent / "seeds"
TITLE = re.compile(r"(\w+) (Request|Response) \(Version: (\d+)\) =>|(Request|Response) Header v(\d) =>")
FIELD = re.compile(r"\s*\w+ =>")

RENAMED = "ListClientMetricsResources became ListConfigResources (KIP-1142), and its response's fields with it"
REUSED = (
    "3.6 had an early ConsumerGroupHeartbeat under the same number (KIP-848); the table has the one of 3.7 and later"
)
EXCEPTIONS = {
    "3.9": {
        ("ListClientMetricsResources", 0, "request"): RENAMED,
        ("ListClientMetricsResources", 0, "response"): RENAMED,
    },
    "3.6": {
        ("ConsumerGroupHeartbeat", 0, "request"): REUSED,
        ("ConsumerGroupHeartbeat", 0, "response"): REUSED,
    },
}
Key = tuple[str, int, str]


def blocks(release: str) -> Iterator[tuple[Key, list[str]]]:
    """(name, version, direction) and the words of each grammar; a header's name is `Header`."""
    key: Key | None = None
    words: list[str] = []
    for line in (SEEDS / f"kafka-{release}-guide.txt").read_text().replace("\\", "").splitlines():
        title = TITLE.match(line)
        if title or not FIELD.match(line):
            if key is not None:
                yield key, words
            key = None
        if title:
            name, direction, version, of_header, header_version = title.groups()
            key = (name or "Header", int(version or header_version), (direction or of_header).lower())
            words = []
        if key is not None:
            words += line.split()


def printed(key: Key) -> list[str]:
    name, version, direction = key
    if name == "Header":
        return header_grammar(direction, version).split()
    return grammar(schema.names()[name], version, direction).split()


@pytest.mark.parametrize(("release", "count"), [("3.9", 610 + 5), ("3.6", 542 + 5)])
def test_grammars_equal_the_guide(release: str, count: int) -> None:
    """Every grammar of the guide is printed as it stands there, but for the exceptions."""
    found = dict(blocks(release))

    differing = {key for key, words in found.items() if printed(key) != words}

    assert len(found) == count
    assert differing == set(EXCEPTIONS[release])


@pytest.mark.parametrize("release", ["3.9", "3.6"])
def test_the_table_leaves_no_version_of_a_guide_out(release: str) -> None:
    """Requests and responses come in the same versions, from the first to the last of the guide, without a gap."""
    keys = {key for key, _ in blocks(release) if key[0] != "Header"}

    for name in {name for name, _, _ in keys}:
        for direction in ("request", "response"):
            versions = {version for other, version, way in keys if (other, way) == (name, direction)}

            assert versions == set(range(min(versions), max(versions) + 1)), name
            assert versions <= set(schema.load(schema.names()[name]).versions), name
