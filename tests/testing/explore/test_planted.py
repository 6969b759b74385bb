"""Planted programs on librdkafka's mock cluster: each is found in time, shrunk to the plan named beside it, and
replayed each time; put right, nothing is found. `KPROXY_TEST_ALL=1` runs them: they take minutes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.testing.explore.conftest import Explorations

pytestmark = [pytest.mark.process, pytest.mark.deep]
REPLAYS = 10


@dataclass(frozen=True)
class Planted:
    """A program with a mistake: `within` how many runs it is found, what the test says then, or what is proved, and the
    plan it is shrunk to."""

    file: str
    within: int
    message: str
    plan: str
    options: tuple[str, ...] = ("--first",)

    def __str__(self) -> str:
        return self.file


ON_MOCK = [
    Planted("retries_by_hand", 6, "doubled", "after the work",
            ("--faults=transient", "--first")),
    Planted("commits_first", 30, "lost", "Produce #1"),
    Planted("commits_beyond", 30, "commit-beyond", "OffsetCommit of 4"),  # only verify finds it
    Planted("nothing_is_the_end", 12, "lost", "Fetch from"),
    Planted("looks_away", 138, "lost", "; ", ("--faults=transient", "--first")),
]  # fmt: skip
RIGHT = ["retries_by_hand", "commits_first", "commits_beyond", "nothing_is_the_end"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("planted", ON_MOCK, ids=str)
def test_it_is_found(explorations: Explorations, planted: Planted) -> None:
    """In time, as the plan that is known, and again each time."""
    assert_found(explorations, planted)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", RIGHT)
def test_nothing_is_found_in_what_is_right(explorations: Explorations, file: str) -> None:
    """Each program, put right; but for what librdkafka does, whatever a program does."""
    told = explorations.explore(f"{file}.py::test_right", "--for=120s", "--runs=100")
    assert [one for one in told.findings if not is_of_client(one)] == [], told.text
    assert told.code == (1 if told.findings else 0), told.text


def is_of_client(finding: dict[str, Any]) -> bool:
    """Return True if the finding is known behaviour of a client library."""
    return finding["client_behaviour"] is not None


def assert_found(explorations: Explorations, planted: Planted) -> None:
    """Assert that a program's mistake is found, shrunk and replayed."""
    told = explorations.explore(
        f"{planted.file}.py::test_planted", f"--runs={planted.within}", "--for=300s", *planted.options
    )
    assert told.code == 1, told.text
    said = [(one["signature"]["message"], *one["signature"]["checks"]) for one in told.findings]
    finding = next(one for one, texts in zip(told.findings, said, strict=True) if planted.message in " ".join(texts))
    assert finding["first"] <= planted.within, told.text
    assert planted.plan in finding["smallest"]["text"], told.text
    explorations.write("test_again.py", f"""
        import pytest
        from {planted.file} import test_planted as planted

        @pytest.mark.kproxy_own_names
        @pytest.mark.kproxy_rules("{finding["file"]}")
        @pytest.mark.parametrize("number", range({REPLAYS}))
        def test_again(kproxy, number):
            with pytest.raises(AssertionError, match="{planted.message}"):
                planted(kproxy)
                kproxy.verify()
    """)  # fmt: skip
    code, text = explorations.pytest("test_again.py")
    assert code == 0, text
