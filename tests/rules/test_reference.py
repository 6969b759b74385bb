"""The reference pages say what the models say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from kproxy.app.config.document import config_from
from kproxy.rules.document.read import parse_rules
from kproxy.rules.kinds import KINDS
from kproxy.rules.values.source import Source

DOCS = Path(__file__).parents[2] / "docs"


def load_tables() -> Any:
    """Import docs/tables.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = load_tables()
GENERATED = {file.relative_to(DOCS.parent).as_posix(): text for file, text in tables.generated().items()}
PAGES = sorted(name for name, text in GENERATED.items() if re.search("<!-- (table|kind): ", text))


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_generated_parts_are_those_of_the_models(name: str) -> None:
    """`python docs/tables.py` would change nothing, and knows each table that it finds."""
    text = (DOCS.parent / name).read_text()

    assert GENERATED[name] == text
    assert all("\n|---|" in part for part in re.findall(r"<!-- table: .*?<!-- end -->", text, re.DOTALL))
    marks = re.findall(r"^<!-- (?!end|example: |fields: )", text, re.MULTILINE)
    assert len(marks) == text.count("<!-- end -->\n")


def test_pages_show_each_kind_once_and_common_fields_never() -> None:
    """`name` and `kind` are explained for all kinds in rules.md."""
    sections: list[str] = []
    for page in {*tables.kind_places({page: page.read_text() for page in DOCS.glob("*.md")}).values()}:
        text = page.read_text()
        sections += re.findall(r"^<!-- kind: (\w+) -->\n\n###? \1$", text, re.MULTILINE)
        assert not re.search(r"^\| `(name|kind)` \|", text, re.MULTILINE)
    assert sorted(sections) == list(KINDS)


def test_kind_blocks_a_new_kind_gets_one_in_its_group() -> None:
    """Text by hand is kept, and a second block of a kind is an error."""
    pages = {page: page.read_text() for page in DOCS.glob("*.md")}
    place = tables.kind_places(pages)["drop_records"]
    block = re.search(r"<!-- kind: drop_records -->\n.*?<!-- end -->\n", pages[place], re.DOTALL)
    assert block is not None
    without = pages | {place: pages[place].replace(block[0], "")}

    added = tables.kinds_pages(without)

    assert tables.kind_places(added)["drop_records"] == place
    assert added[place].replace("<!-- kind: drop_records -->\n<!-- end -->\n\n", "") == without[place]
    with pytest.raises(ValueError, match="expected one block of kind drop_records, got two"):
        tables.kind_places({Path("a.md"): block[0], Path("b.md"): block[0]})
    with pytest.raises(ValueError, match="expected a block of kind quota on a page, got none"):
        tables.kinds_pages({page: text.replace("<!-- kind: quota -->", "") for page, text in pages.items()})


def test_a_fault_without_a_row_gets_one_and_rows_are_kept() -> None:
    """The next number, the first sentence of the kind and its example; the page as it stands lacks none."""
    table = (DOCS / "faults.md").read_text().partition("<!-- faults -->\n")[2].partition("<!-- end -->")[0]
    without = "".join(line for line in table.splitlines(keepends=True) if "`no_controller`" not in line)

    assert tables.faults_table(table) == table
    kept, _, row = tables.faults_table(without).rstrip("\n").rpartition("\n")
    assert f"{kept}\n" == without
    number, fault = len(without.splitlines()) - 1, "tells clients that the cluster has no controller"
    assert row == f"| {number} | {fault} | `no_controller` | `kind: no_controller, when: {{for: 30s}}` |"


OTHERS = {
    f"docs/{name}.md"
    for name in (
        "admin-api",
        "compatibility",
        "live-view",
        "metrics",
        "networks",
        "reference",
        "rule-tests",
        "services/index",
    )
}
"""Pages with documents of another kind, which other tests read, or without any."""


@pytest.mark.parametrize("page", [page for page in PAGES if page not in OTHERS])
def test_documents_on_the_pages_are_right(page: str) -> None:
    """A copied document has no error."""
    documents = re.findall(r"```yaml\n(.*?)```", (DOCS.parent / page).read_text(), re.DOTALL)

    assert documents
    for document in documents:
        if re.match(r"(#.*\n)*rules:", document):
            assert len(parse_rules(document)) > 0
        else:
            assert config_from(Source(page, document)) is not None
