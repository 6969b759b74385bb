"""Every input that is worth keeping goes through its target again: mended findings, and ways into the code.

Without the fuzzer; `make fuzz` looks for more. A sample by default, all with KPROXY_TEST_ALL=1. What every target
promises stands on top of its module in targets/.
"""

from __future__ import annotations

import os
from base64 import b64encode

import pytest

from tests.lab.fuzz.corpus import FOLDER, TARGETS, findings, kept, target
from tests.lab.fuzz.targets import session
from tests.support.line_count import LineCount

EVERY = 1 if os.environ.get("KPROXY_TEST_ALL") else 3
LARGEST = 300_000
"""Bytes of all corpus files together."""


@pytest.fixture(autouse=True)
def count_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count lines between yield points: a fuzzing run measures seconds."""
    monkeypatch.setattr(session, "WATCH", LineCount)
    monkeypatch.setattr(session, "LONGEST", 200_000)


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_of_the_corpus_is_a_finding(name: str) -> None:
    """The invariants of each target hold for all inputs that are kept, and for those that a run begins with."""
    check = target(name).check
    begins = list(target(name).seeds())
    assert begins
    inputs = kept(name) or begins
    assert inputs
    for data in inputs[::EVERY]:
        try:
            check(data)
        except BaseException as error:
            error.add_note(f"input: {b64encode(data).decode()}")
            raise


@pytest.mark.parametrize(("name", "data"), findings())
def test_what_once_went_wrong_is_mended(name: str, data: bytes) -> None:
    """Every finding that was a mistake of kproxy's."""
    target(name).check(data)


def test_the_corpus_stays_small() -> None:
    """So that it can be read along with the code: one file for each target, and no others."""
    files = sorted(FOLDER.iterdir())
    assert sum(file.stat().st_size for file in files) < LARGEST
    assert {file.stem for file in files} <= {*TARGETS, "findings"}
