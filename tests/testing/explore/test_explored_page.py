"""The documentation page about explorations, worked through, and the layout of HTML reports in Chromium."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from kproxy.testing.cluster import MockCluster
from kproxy.testing.explore.places import common_places
from kproxy.testing.explore.plan import fault_table
from kproxy.testing.explore.report import html_report
from kproxy.testing.explore.result import Exploration, FaultFinding, judge
from tests.howto import Reader
from tests.testing.explore.made_up import COPY, commit, exchange, failed_run, made_run, plan, planned, produce, stable

pytestmark = [pytest.mark.process, pytest.mark.tools("chromium")]
CHROMIUM = os.environ.get("KPROXY_CHROMIUM", "/usr/bin/chromium")
LONG = "x" * 400
WIDER = """() => [...document.querySelectorAll("body *")]
  .filter(one => !one.closest(".table") && one.getClientRects().length)
  .filter(one => one.getBoundingClientRect().right > innerWidth + 1 || one.scrollWidth > one.clientWidth + 1
                 && getComputedStyle(one).overflowX === "visible" && getComputedStyle(one).display !== "inline")
  .map(one => `${one.tagName} ${one.className} ${one.textContent.slice(0, 40)}`)"""
NARROWEST = "() => Math.min(...[...document.querySelectorAll('thead th')].map(one => one.offsetWidth))"
SPILLED = """() => [...document.querySelectorAll("th, td")].filter(one => {
    const text = document.createRange(), box = one.getBoundingClientRect()
    text.selectNodeContents(one)
    return [...text.getClientRects()].some(part => part.left < box.left - 1 || part.right > box.right + 1)
  }).map(one => one.textContent)"""


@pytest.mark.timeout(900)
@pytest.mark.deep
def test_the_page_can_be_worked_through(tmp_path: Path, mock_cluster: MockCluster) -> None:
    """A test and a program are explored, and each finding is told as the page says."""
    with ExitStack() as stack:
        reader = Reader(tmp_path, mock_cluster, stack)
        reader.limit = 400
        assert reader.work_through("explore.md") == 4
    (by_test,) = (tmp_path / "explored").glob("test_orders_are_stored_once-*.yaml")
    (by_program,) = (tmp_path / "explored").glob("python-send_orders-py-*.yaml")
    assert all("disconnect" in file.read_text() or "error" in file.read_text() for file in (by_test, by_program))


def wide_exploration() -> Exploration:
    """Return an exploration of all faults with many places, and long names and messages."""
    groups = [exchange("OffsetFetch", group=f"{LONG}{number}") for number in range(60)]
    exchanges = (*COPY, produce(4, topic=LONG), commit(9), *groups, exchange("Heartbeat", client=LONG, group="g"))
    places = stable(exchanges)
    table = fault_table()
    run = failed_run(
        plan(planned("Produce", "NOT_ENOUGH_REPLICAS_AFTER_APPEND, after the work", places[1], table)), LONG,
        output=LONG, stacks=LONG, story=(LONG,), problem=LONG,
    )  # fmt: skip
    deeper = failed_run(plan(*run.plan.steps, planned("Heartbeat", "answer lost", places[-1], table)), LONG)
    runs = [judge(one) for one in (run, deeper, made_run(plan(planned("Fetch", "one batch", places[0], table))))]
    finding = FaultFinding(runs[0].signature, runs[0], 1, smallest=run.plan, file=f"explored/{LONG}.yaml")
    return Exploration(
        f"tests/test_{LONG}.py::test_{LONG}[{LONG}]", learned=common_places(places, places), runs=runs,
        findings=[finding], all_faults=frozenset(one.name for one in table.all), problem=LONG, notes=[LONG],
    )  # fmt: skip


@pytest.mark.parametrize("width", [1440, 390])
def test_html_report_with_long_names_fits_the_window(tmp_path: Path, width: int) -> None:
    from playwright.sync_api import sync_playwright

    file = tmp_path / "report.html"
    file.write_text(html_report([wide_exploration(), wide_exploration()]))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--disable-gpu"])
        page = browser.new_page(viewport={"width": width, "height": 900}, is_mobile=width < 500)
        page.goto(f"{file.as_uri()}#t0-0")
        page.evaluate("() => document.querySelectorAll('details').forEach(one => one.open = true)")
        page.wait_for_selector("#t0-0")
        wide = page.evaluate("() => [innerWidth, document.documentElement.scrollWidth]")
        wider, spilled = page.evaluate(WIDER), page.evaluate(SPILLED)
        narrowest = page.evaluate(
            "() => Math.min(...[...document.querySelectorAll('thead th')].map(e => e.offsetWidth))"
        )
        browser.close()
    assert wide == [width, width]
    assert wider == [] and spilled == []
    assert narrowest >= 80  # pixels: words of a header stay whole
