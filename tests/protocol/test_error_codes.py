"""The error table: the guides' codes, names and flags, and lookups both ways."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import kproxy
from kproxy.cli import show
from kproxy.protocol.codec.trace import TraceStep
from kproxy.protocol.table import layout
from kproxy.protocol.table.api_keys import HEARTBEAT
from kproxy.protocol.table.errors import all_codes, by_name, error_name, numbers
from kproxy.record.live_view import frame_steps
from kproxy.record.metrics import label_sink
from kproxy.record.observer import summary
from kproxy.tools.rehearse.cases import compare as case_compare
from kproxy.tools.rehearse.explain import evaluate
from kproxy.tools.replay import compare

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
    """From 128 on the names are those of the Java client 4.4."""
    newer = {error.code: (error.name, error.retriable) for error in all_codes() if error.code > 127}

    assert newer == {
        128: ("INVALID_REGULAR_EXPRESSION", False),
        129: ("REBOOTSTRAP_REQUIRED", False),
        130: ("STREAMS_INVALID_TOPOLOGY", False),
        131: ("STREAMS_INVALID_TOPOLOGY_EPOCH", False),
        132: ("STREAMS_TOPOLOGY_FENCED", False),
        133: ("SHARE_SESSION_LIMIT_REACHED", True),
        134: ("GROUP_DELETION_FAILED", False),
        135: ("STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", False),
        136: ("CONTROLLER_ID_NOT_REGISTERED", False),
    }


def test_error_code_and_name_find_the_same_row() -> None:
    """Codes and names are unique, and each leads to its row, which says what it means."""
    assert all(numbers()[error.code] is by_name(error.name) is error and error.means for error in all_codes())


def test_by_name_with_unknown_name_raises() -> None:
    """Lookups by name do not invent errors."""
    with pytest.raises(KeyError):
        by_name("NO_SUCH_ERROR")


ERROR_SLOT = next(slot for slot in layout.body(HEARTBEAT, 4, "response").slots if slot.kind == "error_code")


@pytest.mark.parametrize("code", [9999, -2, 32767, -32768])
@pytest.mark.parametrize(
    "text",
    [
        error_name,
        label_sink.known_error,
        summary.error_name,
        compare.error_name,
        evaluate.error,
        lambda code: case_compare.shown(code, True),
        lambda code: show.brief(TraceStep("error_code", 0, 2, code, slot=ERROR_SLOT)),
        lambda code: frame_steps.name_of(TraceStep("error_code", 0, 2, code, slot=ERROR_SLOT)),
    ],
)
def test_error_text_of_unknown_code_does_not_raise(text: Callable[[int], str], code: int) -> None:
    """Brokers choose error codes, so every function that shows one accepts codes that the table lacks."""
    assert text(code) in ("", "unknown", str(code))


def test_table_lookups_by_error_code_have_a_guard() -> None:
    """A subscript of the table by number raises KeyError unless `in numbers()` is tested in the same function."""
    found = []
    for path in sorted(Path(kproxy.__path__[0]).rglob("*.py")):
        lines = path.read_text().splitlines()
        for at, line in enumerate(lines):
            if "numbers()[" in line and not re.search(
                r"\bin (error_codes\.)?numbers\(\)", " ".join(lines[at - 1 : at + 1])
            ):
                found.append(f"{path.name}:{at + 1}")
    assert not found
