"""The changelog: one list of features until there is a release, in the form that its head describes."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
CHANGELOG = re.sub(r"(?:\n\[[\w.-]+\]: \S+)+\n\Z", "", TEXT)  # without the links that `make home` adds


def test_versions_stand_newest_first_and_the_first_tells_features_only() -> None:
    """*Unreleased* comes first, then versions downwards; the oldest has nothing that could have changed."""
    headings = re.findall(r"^## \[([^\]]+)\]", CHANGELOG, re.MULTILINE)
    oldest = CHANGELOG.rpartition("\n## [")[2]

    assert headings[0] == "Unreleased"
    numbers = [tuple(map(int, one.split("."))) for one in headings[1:]]
    assert numbers == sorted(numbers, reverse=True)
    assert not re.search(r"^### (Changed|Removed|Fixed|Deprecated)$", oldest, re.MULTILINE)


def test_each_line_is_short_and_in_a_group() -> None:
    """Four lines at most for an entry, and no group without one."""
    groups = re.split(r"^### .+$", CHANGELOG.partition("\n## [")[2], flags=re.MULTILINE)[1:]

    assert groups
    for group in groups:
        entries = re.split(r"^- ", group, flags=re.MULTILINE)[1:]
        assert entries
        assert [entry for entry in entries if len(entry.strip().splitlines()) > 4] == []
