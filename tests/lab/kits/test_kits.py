"""The test kits are there, as small as is said of them, and what pages show of them is what their tests run.

`make kits` runs their suites, which fetches each language's Kafka client.
"""

from __future__ import annotations

import re
import shutil
import textwrap
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest

from tests.lab.kits.packages import PACKAGERS, PackageError, go_module, write_go_proxy
from tests.lab.kits.run import run_suites
from tests.lab.kits.suites import CLIENTS, KIT_SUITES, ROOT, KitSuite

MOST_LINES = 300
PAGE = ROOT / "docs" / "test-languages.md"
SNIPPETS = {
    "java": ("java", "junit/src/test/java/kproxy/RetriesTest.java"),
    "go": ("go", "example/retries_test.go"),
    "typescript": ("typescript", "test/retries.test.ts"),
    "python": ("python", "tests/test_retries.py"),
}
TESTS = ("**/src/test/**/*.java", "**/*_test.go", "test/*.ts", "tests/*.py")
"""Language of a snippet in Markdown, and the test that it is a part of."""
NO_CODE = re.compile(r"^\s*(//.*|/?\*.*|#.*|import .*|from .*|package .*)?$")

OWN = re.compile(
    r"java\.|kproxy\.|org\.junit\.jupiter\.api\.|(org\.)?testcontainers\.|node:|[a-z_/]+(\.(parse|error|request|abc))?$"
)


def blocks(page: Path, language: str) -> list[str]:
    """The code of a page in this language."""
    return re.findall(rf"^```{language}\n(.*?)\n```$", page.read_text(), re.MULTILINE | re.DOTALL)


def shown_part(name: str) -> str:
    """The part of a kit's tests that is shown."""
    text = (CLIENTS / name / SNIPPETS[name][1]).read_text()
    (found,) = re.findall(r"^ *(?://|#) snippet: retries\n(.*?)^ *(?://|#) end$", text, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(found).strip()


def test_each_folder_has_a_suite() -> None:
    """And each suite a folder, with a README and a test of its own client's."""
    folders = sorted(path.name for path in CLIENTS.iterdir() if path.is_dir())
    assert folders == sorted(KIT_SUITES) == sorted(SNIPPETS)
    for name in folders:
        assert (CLIENTS / name / "README.md").exists()
        assert f"({name}/README.md)" in (CLIENTS / "README.md").read_text()


@pytest.mark.parametrize("suite", KIT_SUITES.values(), ids=lambda suite: suite.name)
def test_a_kit_is_small(suite: KitSuite) -> None:
    """Blanks, comments and imports are not counted. Java has two packages."""
    packages: dict[str, int] = defaultdict(int)
    for path in suite.code():
        code = [line for line in path.read_text().splitlines() if not NO_CODE.match(line)]
        packages[path.relative_to(CLIENTS / suite.name).parts[0] if suite.name == "java" else suite.name] += len(code)
    assert all(90 < lines <= MOST_LINES for lines in packages.values()), packages


@pytest.mark.parametrize("name", SNIPPETS)
def test_pages_show_what_is_tested(name: str) -> None:
    """The first snippet of a language, in the README and on the page; each line of others is a line of the tests."""
    language, _ = SNIPPETS[name]
    tests = [path for pattern in TESTS for path in (CLIENTS / name).glob(pattern)]
    lines = [line.strip() for path in tests for line in path.read_text().splitlines()]
    for page in (CLIENTS / name / "README.md", PAGE):
        first, *others = blocks(page, language)
        assert first == shown_part(name)
        for other in others:
            assert [line for line in other.splitlines() if line.strip() not in lines] == []


def test_the_page_names_calls_that_there_are() -> None:
    """Each of its table stands in the code of its kit."""
    table = PAGE.read_text().partition("## What each has")[2].partition("\n\n- ")[0]
    for line in table.splitlines()[4:]:
        for name, cell in zip(SNIPPETS, line.split("|")[2:6], strict=True):
            code = "".join(path.read_text() for path in KIT_SUITES[name].code())
            for call in re.findall(r"`(?:\w+\.)*(\w+)\(?", cell):
                assert re.search(rf"\b{call}\b", code), f"{name} has no {call}"


def test_kits_need_nothing_but_their_language() -> None:
    """Without dependencies, except JUnit's API and Testcontainers; tests may have other ones."""
    assert "require" not in (CLIENTS / "go" / "go.mod").read_text()
    assert '"dependencies"' not in (CLIENTS / "typescript" / "package.json").read_text()
    used = {path: path.read_text() for name in KIT_SUITES for path in KIT_SUITES[name].code()}
    for path, text in used.items():
        imported = re.findall(r"^import (?:static )?([\w.]+);", text, re.MULTILINE)
        imported += re.findall(r"from '([^']+)'", text) + re.findall(r'^\t"([^"]+)"$', text, re.MULTILINE)
        imported += (
            re.findall(r"^(?:from|import) (\S+)(?: import .*)?$", text, re.MULTILINE) if path.suffix == ".py" else []
        )
        foreign = [name for name in imported if not OWN.match(name)]
        assert foreign == [], path
        assert imported or path.name == "KproxyServer.java", path


def test_run_reports_each_kit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A missing tool is named with its package. If no kit could run, the exit code is 1."""
    monkeypatch.setattr("tests.lab.kits.suites.tool_path", lambda tool: None if tool in ("mvn", "node") else tool)
    monkeypatch.setattr(KitSuite, "copied", lambda suite: tmp_path)
    monkeypatch.setattr(KitSuite, "run", lambda suite, folder: 0)
    packaged: list[tuple[Path, Path, str]] = []
    monkeypatch.setitem(PACKAGERS, "go", lambda *arguments: packaged.append(arguments))
    dist = tmp_path / "dist"

    assert run_suites(["java", "go", "typescript"], version="1.2.3", dist=dist) == 0
    assert capsys.readouterr().out.splitlines() == [
        "java: left out, there is no mvn (Debian: maven)",
        "go: passed",
        "typescript: left out, there is no node (Debian: nodejs)",
    ]
    assert packaged == [(tmp_path, dist, "1.2.3")]
    assert run_suites(["java"], dist=dist) == 1
    assert run_suites(["go"], ("package",), dist=dist) == 0
    assert "go: packaged" in capsys.readouterr().out
    monkeypatch.setattr(KitSuite, "run", lambda suite, folder: 2)
    assert run_suites(["go", "java"], dist=dist) == 1
    assert "go: failed, exit code 2" in capsys.readouterr().out

    def incomplete(*arguments: object) -> None:
        raise PackageError("expected x.jar, got none (at dist)")

    monkeypatch.setitem(PACKAGERS, "go", incomplete)
    assert run_suites(["go"], ("package",), dist=dist) == 1
    assert "go: failed, expected x.jar, got none (at dist)" in capsys.readouterr().out


def test_go_proxy_has_the_module_with_a_repository_path(tmp_path: Path) -> None:
    """The example's files are not part of the module, and a changed file changes the version."""
    kit = tmp_path / "go"
    shutil.copytree(CLIENTS / "go", kit)
    (kit / "go.mod").write_text("module kproxykit\n\ngo 1.24\n")
    path = go_module(kit)
    version = write_go_proxy(kit, tmp_path / "proxy", path)
    folder = tmp_path / "proxy" / path / "@v"

    assert (folder / f"{version}.mod").read_text().splitlines()[0] == f"module {path}"
    with zipfile.ZipFile(folder / f"{version}.zip") as archive:
        names = [name.removeprefix(f"{path}@{version}/") for name in archive.namelist()]
    assert names == ["go.mod", "kproxykit.go", "kproxykit_test.go", "README.md"]
    (kit / "go.mod").write_text("module example.org/owner/project/clients/go\n\ngo 1.24\n")
    assert go_module(kit) == "example.org/owner/project/clients/go"
    assert write_go_proxy(kit, tmp_path / "proxy", go_module(kit)) != version


def test_make_has_the_verbs_of_the_kits() -> None:
    """`make containers` passes the image to the kits with containers; their tests are left out without it."""
    makefile = (ROOT / "Makefile").read_text()
    assert "KPROXY_IMAGE='$(IMAGE):dev' $(BIN)/python -m tests.lab.kits.run --step test java python" in makefile
    assert "$(BIN)/python -m tests.lab.kits.run --step package" in makefile
    for test in (
        "java/testcontainers/src/test/java/kproxy/testcontainers/RetriesTest.java",
        "python/tests/test_retries.py",
    ):
        assert "KPROXY_IMAGE" in (CLIENTS / test).read_text()
