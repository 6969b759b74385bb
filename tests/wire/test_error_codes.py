"""The error table: the guides' codes, names and flags, and lookups both ways."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kproxy.wire.table.errors import all_codes, by_code, by_name

SEEDS = Path(__file__).parent / "seeds"
ROW = re.compile(r"^\|? ?([A-Z_0-9]+) +\| (-?\d+) +\| (True|False) +\|", re.MULTILINE)


@pytest.mark.parametrize(("release", "last"), [("3.9", 127), ("3.6", 113)])
def test_the_table_of_a_guide_is_carried_over(release: str, last: int) -> None:
    """Each row of the guide has its code, its name and its retriable flag."""
    text = (SEEDS / f"kafka-{release}-guide.txt").read_text().replace("\\", "")
    rows = [(int(code), name, flag == "True") for name, code, flag in ROW.findall(text)]

    assert [row[0] for row in rows] == list(range(-1, last + 1))
    assert rows == [(error.code, error.name, error.retriable) for error in all_codes()][: len(rows)]


def test_codes_newer_than_the_guides_are_there() -> None:
    """From 128 on the names are those of the Java client 4.3."""
    newer = {error.code: (error.name, error.retriable) for error in all_codes() if error.code > 127}

    assert newer == {
        128: ("INVALID_REGULAR_EXPRESSION", False),
        129: ("REBOOTSTRAP_REQUIRED", False),
        130: ("STREAMS_INVALID_TOPOLOGY", False),
        131: ("STREAMS_INVALID_TOPOLOGY_EPOCH", False),
        132: ("STREAMS_TOPOLOGY_FENCED", False),
        133: ("SHARE_SESSION_LIMIT_REACHED", True),
    }


def test_number_and_name_find_the_same_error() -> None:
    """Codes and names are unique, and each leads to its row, which says what it means."""
    assert all(by_code(error.code) is by_name(error.name) is error and error.means for error in all_codes())


def test_a_code_that_nobody_knows_is_a_key_error() -> None:
    """Lookups do not invent errors."""
    with pytest.raises(KeyError):
        by_code(9999)
    with pytest.raises(KeyError):
        by_name("NO_SUCH_ERROR")
