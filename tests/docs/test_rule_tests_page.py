"""The page about testing rules: its files are written, its commands run, and its transcripts compared."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "rule-tests.md").read_text()
FILES = re.findall(r"^```yaml\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TRANSCRIPTS = re.findall(r"^```\n\$ kproxy (.*?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the page's files in it."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES:
        (tmp_path / name).write_text(f"# {name}\n{text}")
    return tmp_path


def test_the_page_has_files_and_transcripts() -> None:
    """So that nothing below passes because nothing is there."""
    assert {name for name, _ in FILES} == {"orders.yaml", "orders.test.yaml", "doubtful.yaml"}
    assert {words.split()[0] for words, _ in TRANSCRIPTS} == {"test", "explain", "check"}


@pytest.mark.parametrize(("words", "printed"), TRANSCRIPTS)
def test_each_command_prints_what_the_page_shows(words: str, printed: str, folder: Path) -> None:
    """To the letter. The one that fails has the change in its rules that the page says."""
    if "FAIL" in printed:
        rules = folder / "orders.yaml"
        rules.write_text(rules.read_text().replace("nth: 3", "nth: 2"))
    result = CliRunner().invoke(main, shlex.split(words))

    assert result.output == printed
    assert result.exit_code == (1 if "FAIL" in printed else 0)
