"""The test kits are there, as small as is said of them, and what pages show of them is what their tests run.

`make kits` runs their suites, which fetches each language's Kafka client.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.lab.kits.run import run_suites
from tests.lab.kits.suites import CLIENTS, KIT_SUITES, ROOT, KitSuite

MOST_LINES = 300
PAGE = ROOT / "docs" / "test-languages.md"
SNIPPETS = {
    "java": ("java", "src/test/java/kproxy/RetriesTest.java"),
    "go": ("go", "example/retries_test.go"),
    "typescript": ("typescript", "test/retries.test.ts"),
}
"""Language of a snippet in Markdown, and the test that it is a part of."""
NO_CODE = re.compile(r"^\s*(//.*|/?\*.*|import .*|package .*)?$")


def blocks(page: Path, language: str) -> list[str]:
    """The code of a page in this language."""
    return re.findall(rf"^```{language}\n(.*?)\n```$", page.read_text(), re.MULTILINE | re.DOTALL)


def shown_part(name: str) -> str:
    """The part of a kit's tests that is shown."""
    text = (CLIENTS / name / SNIPPETS[name][1]).read_text()
    (found,) = re.findall(r"^ *// snippet: retries\n(.*?)^ *// end$", text, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(found).rstrip()


def test_each_folder_has_a_suite() -> None:
    """And each suite a folder, with a README and a test of its own client's."""
    folders = sorted(path.name for path in CLIENTS.iterdir() if path.is_dir())
    assert folders == sorted(KIT_SUITES) == sorted(SNIPPETS)
    for name in folders:
        assert (CLIENTS / name / "README.md").exists()
        assert f"({name}/README.md)" in (CLIENTS / "README.md").read_text()


@pytest.mark.parametrize("suite", KIT_SUITES.values(), ids=lambda suite: suite.name)
def test_a_kit_is_small(suite: KitSuite) -> None:
    """Blanks, comments and imports are not counted."""
    code = [line for path in suite.code() for line in path.read_text().splitlines() if not NO_CODE.match(line)]
    assert 100 < len(code) <= MOST_LINES


@pytest.mark.parametrize("name", SNIPPETS)
def test_pages_show_what_is_tested(name: str) -> None:
    """The first snippet of a language, in the README and on the page; each line of others is a line of the tests."""
    language, test = SNIPPETS[name]
    lines = [line.strip() for line in (CLIENTS / name / test).read_text().splitlines()]
    for page in (CLIENTS / name / "README.md", PAGE):
        first, *others = blocks(page, language)
        assert first == shown_part(name)
        for other in others:
            assert [line for line in other.splitlines() if line.strip() not in lines] == []


def test_the_page_names_calls_that_there_are() -> None:
    """Each of its table stands in the code of its kit."""
    table = PAGE.read_text().partition("## What each has")[2].partition("\n\n- ")[0]
    for line in table.splitlines()[4:]:
        for name, cell in zip(("java", "go", "typescript"), line.split("|")[2:5], strict=True):
            code = "".join(path.read_text() for path in KIT_SUITES[name].code())
            for call in re.findall(r"`(?:\w+\.)*(\w+)\(?", cell):
                assert re.search(rf"\b{call}\b", code), f"{name} has no {call}"


def test_kits_need_nothing_but_their_language() -> None:
    """No dependency for what a user takes: tests may have some, and Java's kit JUnit's API."""
    assert "require" not in (CLIENTS / "go" / "go.mod").read_text()
    assert '"dependencies"' not in (CLIENTS / "typescript" / "package.json").read_text()
    used = {path: path.read_text() for name in KIT_SUITES for path in KIT_SUITES[name].code()}
    for path, text in used.items():
        imported = re.findall(r"^import (?:static )?([\w.]+);", text, re.MULTILINE)
        imported += re.findall(r"from '([^']+)'", text) + re.findall(r'^\t"([^"]+)"$', text, re.MULTILINE)
        foreign = [name for name in imported if not re.match(r"java\.|org\.junit\.jupiter\.api\.|node:|[a-z/]+$", name)]
        assert foreign == [], path
        assert imported, path


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With the package that brings it; nothing that could be run is no success."""
    monkeypatch.setattr("tests.lab.kits.suites.tool_path", lambda tool: None if tool in ("mvn", "node") else tool)
    monkeypatch.setattr(KitSuite, "run", lambda suite: 0)

    assert run_suites(["java", "go", "typescript"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "java: left out, there is no mvn (Debian: maven)",
        "go: passed",
        "typescript: left out, there is no node (Debian: nodejs)",
    ]
    assert run_suites(["java"]) == 1
    monkeypatch.setattr(KitSuite, "run", lambda suite: 2)
    assert run_suites(["go", "java"]) == 1
    assert "go: failed, exit code 2" in capsys.readouterr().out
