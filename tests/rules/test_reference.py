"""The reference pages say what the models say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from kproxy.config_file import config_from
from kproxy.rules.document import parse_rules
from kproxy.rules.source import Source

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md") if "<!-- table:" in page.read_text())


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_those_of_the_models(page: str) -> None:
    """`python docs/tables.py` would change nothing."""
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    text = (DOCS / page).read_text()

    assert tables.filled(text) == text
    known = ("| key | what |", "| column | type |", "| short | field |", "| question | table |", "| metric | type |",
             "| method | path |", "| command | what |")  # fmt: skip
    assert text.count("<!-- table:") == text.count("<!-- end -->\n") <= sum(text.count(head) for head in known)


OTHERS = ("rules-tests.md", "inspect.md", "answers.md", "reference.md")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in OTHERS])
def test_documents_on_the_pages_are_right(page: str) -> None:
    """Whoever copies one gets no mistake. (Documents of the pages left out are of another kind, or there are none.)"""
    documents = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)

    assert documents
    for document in documents:
        if document.startswith("rules:"):
            assert len(parse_rules(document)) > 0
        else:
            assert config_from(Source(page, document)) is not None


def test_links_between_pages_lead_somewhere() -> None:
    """Every link to a heading of a page has that heading."""
    for page in (*DOCS.glob("*.md"), DOCS.parent / "README.md"):
        for target, heading in re.findall(r"\]\(((?:docs/)?[\w-]*\.md)?(?:#([\w-]+))?\)", page.read_text()):
            other = page.parent / target if target else page
            assert other.exists(), f"{page.name}: {target}"
            headings = {
                re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
                for line in other.read_text().splitlines()
                if line.startswith("#")
            }
            assert not heading or heading in headings, f"{page.name}: {target}#{heading}"
