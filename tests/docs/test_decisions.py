"""The decisions: numbered without a gap, each in the form that the index describes."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
FILES = sorted(FOLDER.glob("[0-9]*.md"))
FORM = re.compile(
    r"# (?P<title>[^\n]+)\n\n(?P<date>\d{4}-\d\d-\d\d) · (?P<status>[^\n]+)\n\n## Decision\n\n(?P<decision>.+?)\n\n"
    r"## Why\n\n(?P<why>.+?)\n\n## Cost\n\n(?P<cost>.+?)\n",
    re.DOTALL,
)


def test_numbers_are_consecutive_and_the_index_lists_each_file() -> None:
    """From 001 on; no file of the folder is missing from the index, and none is there twice."""
    index = (FOLDER / "index.md").read_text()

    assert [int(file.name[:3]) for file in FILES] == list(range(1, len(FILES) + 1))
    assert re.findall(r"^\| \d+ \| \[[^]]*\]\(([^)]*)\)", index, re.MULTILINE) == [file.name for file in FILES]
    assert {file.name for file in FOLDER.iterdir()} == {"index.md", *(file.name for file in FILES)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name[:3]))
def test_a_decision_has_title_date_status_and_three_parts(file: Path) -> None:
    """The file is named by the title; what replaces a decision is there and is younger."""
    found = FORM.fullmatch(file.read_text())

    assert found is not None
    words = re.sub(r"[^a-z0-9]+", "-", found["title"].lower().replace("'", "")).strip("-")
    assert file.name == f"{file.name[:3]}-{words}.md"
    assert len(found["title"].split()) >= 4
    assert date.fromisoformat(found["date"]) <= date.fromisoformat(FORM.match(FILES[-1].read_text())["date"])
    if found["status"] != "in force":
        other = re.fullmatch(r"replaced by \[(\d+)\]\((\S+)\)", found["status"])
        assert other is not None
        assert (FOLDER / other[2]).exists()
        assert int(other[1]) > int(file.name[:3])
