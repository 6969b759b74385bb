"""Decision records: numbered without a gap, each in the form that the index describes."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
FILES = sorted(FOLDER.glob("[0-9]*.md"))
FORM = re.compile(
    r"# (?P<title>[^\n]+)\n\nStatus: (?P<status>[^·]+) · Date: (?P<date>\d{4}-\d\d-\d\d) · Area: [^\n]+\n\n"
    r"## Context\n\n.+?\n\n## Options\n\n.+?\n\n## Decision\n\n.+?\n\n## Consequences\n\n.+?\n",
    re.DOTALL,
)


def test_index_lists_each_record_once() -> None:
    """Numbers are consecutive, and the folder has no other files."""
    index = (FOLDER / "index.md").read_text()

    assert [int(file.name[:4]) for file in FILES] == list(range(1, len(FILES) + 1))
    assert sorted(re.findall(r"^\| [^|]+ \| \d+ \| \[[^]]*\]\(([^)]*)\)", index, re.MULTILINE)) == [
        file.name for file in FILES
    ]
    assert {file.name for file in FOLDER.iterdir()} == {"index.md", *(file.name for file in FILES)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name[:4]))
def test_record_has_the_form_of_the_index(file: Path) -> None:
    """The title names the file. A superseded record links to a younger one."""
    found = FORM.fullmatch(file.read_text())

    assert found is not None
    words = re.sub(r"[^a-z0-9]+", "-", found["title"].lower()).strip("-")
    assert file.name == f"{file.name[:4]}-{words}.md"
    assert date.fromisoformat(found["date"])
    if found["status"] != "accepted":
        other = re.fullmatch(r"superseded by \[(\d+)\]\((\S+)\)", found["status"])
        assert other is not None
        assert (FOLDER / other[2]).exists()
        assert int(other[1]) > int(file.name[:4])
