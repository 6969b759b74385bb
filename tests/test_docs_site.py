"""The pages as a site: each is in the navigation, and each link leads to a place that is there. Nothing is built here.

With KPROXY_TEST_ALL=1 and MkDocs installed (`make docs`) it is built, too, with every warning an error.
"""

from __future__ import annotations

import importlib.util
import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
CODE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def hooks() -> Any:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ELSEWHERE: dict[str, str] = hooks().ELSEWHERE
PAGES = {page.relative_to(DOCS).as_posix(): page for page in DOCS.rglob("*.md")} | {
    name: ROOT / path for path, name in ELSEWHERE.items()
}
"""Page of the site: its file."""


def in_navigation(entry: Any) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(entry, str):
        yield entry
    for one in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from in_navigation(one)


def test_every_page_is_in_the_navigation_once() -> None:
    """And the navigation names none that is not there. Decisions and results are linked by other pages."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]

    assert sorted(in_navigation(nav)) == sorted(
        page for page in PAGES if not re.match(r"decisions/\d|results/|conduct", page)
    )


def anchors(text: str) -> set[str]:
    """Those of its headings, as both MkDocs and code hosts make them."""
    found = re.findall(r"^#+ (.+)$", CODE.sub("", text), re.MULTILINE)
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", one) for one in found)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", one).strip().lower()) for one in plain}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_links_lead_to_places_that_are_there(name: str) -> None:
    """To files of the repository, and to headings of pages; on the site to pages only."""
    page = PAGES[name]
    text = CODE.sub("", page.read_text())
    for target, anchor in re.findall(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)", text):
        if "://" not in target:
            other = page if not target else page.parent / target
            assert other.exists(), f"{name} links to {target}"
            if anchor and other.suffix == ".md":
                assert anchor in anchors(other.read_text()), f"{name} links to {target}#{anchor}"
    for target in re.findall(
        r'(?:\]\(|src="|srcset=")([^)\s#"]+)', CODE.sub("", hooks().for_site(page.read_text(), name))
    ):
        place = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        assert "://" in target or place in PAGES or (DOCS / place).is_file(), f"{name} has {target} on the site"


def test_log_lines_of_the_troubleshooting_page_are_kproxys() -> None:
    """Each event that it shows, each cause, and each message that it names stands in the code, word for word."""
    page = (DOCS / "troubleshooting.md").read_text()
    code = "\n".join(file.read_text() for file in (ROOT / "kproxy").rglob("*.py"))
    lines = [line for block in re.findall(r"^```log\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
             for line in block.splitlines()]  # fmt: skip

    assert len(lines) > 20
    for line in lines:
        event, *fields = re.split(r" (?=\w+=)", line)
        assert f'"{event}"' in code, event
        for field in fields:
            assert re.search(rf"""["']{field.partition("=")[2]}["']""", code), line
    for words in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE):
        assert words in code, words


def test_monitoring_page_has_every_cause_of_closes() -> None:
    """The table of causes has those in the code and no others, and log lines of runbooks are in the code."""
    page = (DOCS / "monitor.md").read_text()
    table = page.partition("| cause | meaning |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    code = "".join(
        file.read_text() for part in ("runtime", "session") for file in (ROOT / "kproxy" / part).rglob("*.py")
    )

    assert set(re.findall(r'\b(?:end|close)\(\s*"([a-z_]{4,})"', code)) <= named
    assert {cause for cause in named if f'"{cause}"' not in code} <= {"broker_reset"}  # made of the side
    lines = re.findall(r"log (?:line|has)\s+`([^`]+)`", page)
    assert len(lines) > 4
    assert {line for line in lines if f'"{line}"' not in code} == set()


@pytest.mark.parametrize("site", [None, "https://a.example/kproxy/"])
def test_llms_files_have_each_page_and_links_that_exist(site: str | None) -> None:
    """Each page of the navigation with its title and first sentence; pages of the site are HTML."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    files = hooks().llms_files(nav, site)
    short, full = files["llms.txt"], files["llms-full.txt"]
    assert re.match(r"# kproxy\n\n> A protocol-aware proxy for Apache Kafka\.\n\n## Overview\n", short)
    entries = re.findall(r"^- \[(.+)\]\((\S+)\): (\S.*)$", short, re.MULTILINE)
    assert [place for _, place, _ in entries] == [
        f"{site or ''}{page.removesuffix('.md')}.html" for page in in_navigation(nav)
    ]
    bad = [text for _, _, text in entries if not re.search(r"[.!?]$", text) or re.search(r"\]\(|<|`|\*\*", text)]
    assert bad == [] and max(len(text) for _, _, text in entries) < 300
    assert [title for title, _, _ in entries if f"# {title}\n" not in full] == []
    known = {re.sub(r"\.md$", ".html", page) for page in PAGES}
    for target in re.findall(r"\]\(([^)\s#]+)", CODE.sub("", short + full)):
        place = target.removeprefix(site or "")
        assert "://" in place or "mailto:" in place or place in known or (DOCS / place).is_file(), target
    assert not re.search(r"^<!-- ", full, re.MULTILINE)


if "KPROXY_TEST_ALL" in os.environ and importlib.util.find_spec("mkdocs") is not None:

    @pytest.mark.process
    def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
        """As `make docs` does."""
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ROOT / "mkdocs.yml", "-d", tmp_path]
        built = subprocess.run(command, capture_output=True, text=True, check=False)

        assert built.returncode == 0, built.stderr
        assert all((tmp_path / name).exists() for name in ("reference.html", "llms.txt", "llms-full.txt"))
