"""Everybody can use the page: axe-core finds nothing on any view or dialog in both themes, and keys are enough."""

from __future__ import annotations

import os
import tarfile
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from kproxy.base.jars import cache_folder
from tests.admin.page.conftest import OpenPage, expect
from tests.admin.page.test_page import shown
from tests.support.fake_view import FakeView

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = cache_folder() / "axe-core-4.14.1.tgz"
THEMES = ("light", "dark") if os.environ.get("KPROXY_TEST_ALL") else ("light",)
"""Themes of dialogs and views for axe-core. The list with its details is checked in both themes."""
VIEWS = ("connections", "topology", "charts", "lanes")


@cache
def axe() -> str:
    """Return axe-core, which `make tools` has fetched."""
    if not AXE.exists():
        pytest.skip(f"there is no {AXE.name}: `make tools` fetches it by npm")
    with tarfile.open(AXE) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None, "it is its main file"
        return member.read().decode()


def violations(page: Page) -> list[str]:
    """Return what axe-core finds in the page, or in the dialog that is open: rule, and the first places. In the dark
    theme only contrast is another."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe())
    found: list[dict[str, Any]] = page.evaluate("""() => axe.run(document.querySelector('dialog[open]') ?? document,
        {resultTypes: ['violations'], ...(dark() ? {runOnly: ['color-contrast']} : {})}).then(r => r.violations);
        function dark() { return (document.documentElement.dataset.theme ?? '') === 'dark'; }""")
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"][:3]]


def filled(fake: FakeView) -> None:
    """Give it rows of all sorts."""
    fake.rows_kept = [
        *(fake.row(number, group="billing") for number in range(1, 31)),
        fake.row(31, errors=["NOT_LEADER_OR_FOLLOWER"], rules=["third write fails"]),
        fake.row(32, responder="kproxy", errors=["UNSUPPORTED_VERSION"], latency=253.0, rule_ms=200.0),
        fake.row(33, outcome="no_answer_due", latency=None, response=None),
        fake.row(34, outcome=None, latency=None, response=None, api="Fetch", max_wait=500),
    ]


def test_axe_finds_nothing(fake: FakeView, open_page: OpenPage) -> None:
    """On the list with a row chosen in both themes, on all other views, and in the dialogs."""
    filled(fake)
    page = open_page(fake.page, bypass_csp=True)  # axe comes as text, which the page's policy forbids
    found: dict[str, list[str]] = {}
    for theme in ("light", "dark"):
        page.goto(f"{fake.page}#/exchanges")
        shown(page, 34)
        fake.tick()
        page.wait_for_selector("aside table td")
        found[f"list {theme}"] = violations(page)
        page.keyboard.press("j")
        page.wait_for_selector(".details [role=tab]")
        found[f"chosen {theme}"] = violations(page)
        if theme in THEMES:
            for key, name in (
                ("?", "keys"),
                ("o", "follow"),
                ("C", "columns"),
                ("K", "kill"),
                ("w", "save"),
                ("W", "name"),
            ):
                page.keyboard.press(key)
                page.wait_for_selector("dialog[open]")
                found[f"{name} {theme}"] = violations(page)
                page.keyboard.press("Escape")
                page.wait_for_selector("dialog", state="detached")
            page.keyboard.press("Escape")
            for name in VIEWS:
                page.goto(f"{fake.page}#/{name}")
                page.wait_for_selector(f".view-{name} main")
                found[f"{name} {theme}"] = violations(page)
        page.keyboard.press("D")

    assert {name: one for name, one in found.items() if one} == {}


def test_all_of_it_can_be_reached_by_tab(fake: FakeView, open_page: OpenPage) -> None:
    """The focus goes through head, filter, list, splitter, details and rail, each part once, and is always seen."""
    filled(fake)
    page = open_page(fake.page)
    shown(page, 34)
    page.keyboard.press("j")
    page.wait_for_selector(".details [role=tab]")
    met: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        met.append(
            page.evaluate("""() => { const one = document.activeElement; const style = getComputedStyle(one);
            const seen = style.outlineStyle !== 'none' || getComputedStyle(one.closest('.filter') ?? one).outlineStyle !== 'none';
            return (seen ? '' : 'unseen ') + (one.getAttribute('role') ?? one.localName) + ' ' + (one.getAttribute('aria-label') ?? one.textContent.trim()); }""")
        )
        if met[-1].endswith("body ") or met.count(met[0]) > 1:
            break

    assert not [one for one in met if one.startswith("unseen") and "body" not in one]
    for part in ("combobox Filter", "grid Exchanges", "separator Height of the details", "tab Request"):
        assert sum(one == part for one in met) == 1, met


def test_the_list_says_where_it_is(fake: FakeView, open_page: OpenPage) -> None:
    """The chosen row is named to screen readers, with its number in all."""
    filled(fake)
    page = open_page(fake.page)
    shown(page, 34)
    page.locator(".list").focus()
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_selector("#chosen")

    expect(page.locator(".list")).to_have_attribute("aria-activedescendant", "chosen")
    expect(page.locator("#chosen")).to_have_attribute("aria-rowindex", "3")
    expect(page.locator("#chosen")).to_have_attribute("aria-selected", "true")


def test_a_page_of_half_the_size_works(fake: FakeView, open_page: OpenPage) -> None:
    """As with letters of twice the size: the rail is behind a key, nothing has to be scrolled sideways."""
    filled(fake)
    page = open_page(fake.page, viewport={"width": 840, "height": 500})
    shown(page, 34)
    assert not page.locator("aside").is_visible()
    page.keyboard.press("R")
    page.wait_for_selector("aside.open")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
