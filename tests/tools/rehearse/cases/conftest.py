"""Cases from texts: a rule file and its test file in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kproxy.tools.rehearse.cases.document import load_cases
from kproxy.tools.rehearse.cases.play import CaseFailure, play

Play = Callable[[str, str], list[list[CaseFailure]]]


@pytest.fixture
def played(tmp_path: Path) -> Play:
    """Rules and tests as YAML → what is wrong in each test."""

    def run(rules: str, tests: str) -> list[list[CaseFailure]]:
        (tmp_path / "r.yaml").write_text(rules)
        (tmp_path / "r.test.yaml").write_text(tests)
        return [play(ready) for ready in load_cases(tmp_path / "r.test.yaml")]

    return run


@pytest.fixture
def mistakes(tmp_path: Path) -> Callable[[str, str], list[str]]:
    """Rules and tests as YAML → mistakes, each from its line on."""
    from kproxy.base.errors import DocumentError

    def run(rules: str, tests: str) -> list[str]:
        (tmp_path / "r.yaml").write_text(rules)
        (tmp_path / "r.test.yaml").write_text(tests)
        with pytest.raises(DocumentError) as error:
            load_cases(tmp_path / "r.test.yaml")
        return [line.replace(f"{tmp_path}/", "") for line in error.value.mistakes]

    return run
