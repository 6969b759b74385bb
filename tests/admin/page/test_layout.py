"""The page in windows of different widths, its sorted list, its charts, and the clock of an opened capture."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from kproxy.tools.rehearse.dialogue import request
from tests.admin.page.conftest import OpenPage, expect
from tests.admin.page.test_access import violations
from tests.admin.page.test_held import held
from tests.support.fake_view import FakeView

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

WIDTHS = [(1680, 1000), (1440, 900), (1024, 768), (390, 844)]
FRAME = request(12, 4, 1, group_id="billing")[4:]
AT = FRAME.index(b"billing")
STEPS = [[0, 2, 1, "header.request_api_key", "value", "INT16", 12, "Heartbeat"],
         [AT - 1, AT + 7, 0, "group_id_of_the_member", "value", "COMPACT_STRING", "billing"]]  # fmt: skip
NOON = 1_600_000_000.0  # 2020-09-13 12:26:40 UTC


def side(name: str) -> dict[str, Any]:
    return {"side": name, "bytes": len(FRAME) + 4, "kept": len(FRAME), "form": "whole", "withheld": "",
            "data": b64encode(FRAME).decode(), "steps": STEPS, "decode_error": ""}  # fmt: skip


def detail() -> dict[str, Any]:
    half = {"client": side("client"), "broker": side("broker"), "changed": [{"path": "group_id_of_the_member"}]}
    event = {"api": "Heartbeat", "version": 4, "outcome": "answered", "latency_ms": 2.5, "rules": []}
    return {"id": "0-1", "source": "live", "again_of": None, "event": event, "request": half, "response": half,
            "records": []}  # fmt: skip


def in_sight(page: Page, found: Locator) -> bool:
    """Return True if an element is inside of the window, with some size."""
    box, size = found.bounding_box(), page.viewport_size
    assert size is not None
    return box is not None and box["width"] > 20 and box["height"] > 5 and 0 <= box["x"] and (
        box["x"] + min(box["width"], 60) <= size["width"] and box["y"] + 5 <= size["height"]
    )  # fmt: skip


def opened(fake: FakeView, open_page: OpenPage, width: int, height: int) -> Page:
    """Return a page of this size that shows the details of an exchange."""
    fake.details["0-1"] = detail()
    fake.rows_kept = [fake.row(1, api="Heartbeat")]
    page = open_page(fake.page, viewport={"width": width, "height": height}, color_scheme="light")
    expect(page.locator(".list .row:not(.head)")).to_have_count(1)
    page.locator(".list").focus()
    page.keyboard.press("j")
    expect(page.locator(".details h2")).to_contain_text("Exchange 0-1")
    return page


@pytest.mark.parametrize(("width", "height"), WIDTHS)
def test_fields_and_bytes_of_both_sides_are_reachable(
    fake: FakeView, open_page: OpenPage, width: int, height: int
) -> None:
    """In columns, in rows, or by a button. Names of fields can be read."""
    page = opened(fake, open_page, width, height)
    name = page.locator(".field .name", has_text="group_id_of_the_member")
    assert in_sight(page, name)
    box = name.bounding_box()
    assert box is not None and box["width"] > 100
    for pane, kind in (("Client sent", ".of-client"), ("Broker got", ".of-broker")):
        button = page.locator(".panes button", has_text=pane)
        if button.is_visible():
            button.click()
        expect(page.locator(f".part {kind} .bytes").first).to_be_visible()
        assert in_sight(page, page.locator(f".part {kind} .bytes").first)


@pytest.mark.parametrize(("width", "height"), WIDTHS)
def test_help_fits_and_scrolls(fake: FakeView, open_page: OpenPage, width: int, height: int) -> None:
    """The dialog has no horizontal scroll, and its last key can be scrolled to."""
    page = open_page(fake.page, viewport={"width": width, "height": height}, color_scheme="light")
    page.keyboard.press("?")
    page.wait_for_selector("dialog .keys dl")
    assert (
        page.evaluate(
            "() => { const one = document.querySelector('.keys'); return one.scrollWidth - one.clientWidth; }"
        )
        <= 0
    )
    assert in_sight(page, page.locator("dialog .foot button"))
    last = page.locator("dialog .keys dd").last
    last.scroll_into_view_if_needed()
    assert in_sight(page, last)
    page.locator("dialog .keys").focus()
    page.keyboard.press("Home")


@pytest.mark.parametrize(("width", "height"), WIDTHS)
def test_tab_of_held_frames_keeps_its_width(fake: FakeView, open_page: OpenPage, width: int, height: int) -> None:
    fake.answers["/api/held"] = {"held": [held()], "max_frames": 20, "passed_over": 0}
    page = open_page(fake.page, viewport={"width": width, "height": height}, color_scheme="light")
    tab = page.locator("nav a", has_text="Held")
    expect(tab).to_be_visible()
    assert tab.evaluate("one => one.scrollWidth <= one.clientWidth + 1")
    assert in_sight(page, tab)


@pytest.mark.parametrize("width", [1440, 390])
def test_lanes_with_fifty_in_flight_can_be_read(fake: FakeView, open_page: OpenPage, width: int) -> None:
    """Bars move together, and cover no text."""
    fake.rows_kept = [fake.row(number, time=NOON + number / 1000, latency=900.0, connection=1 + number % 2)
                      for number in range(100)]  # fmt: skip
    page = open_page(fake.page, viewport={"width": width, "height": 900}, color_scheme="light")
    expect(page.locator(".list .row:not(.head)").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("c")
    page.keyboard.press("Y")
    page.wait_for_selector(".moments .bar >> nth=99", state="attached")
    found = page.evaluate("""() => {
      const edge = (one, name) => one.getBoundingClientRect()[name];
      const all = (what) => [...document.querySelectorAll(what)];
      const bars = all(".moments .bar"), texts = all(".moment button");
      const lanes = all(".lane-heads h3").map((one) => [edge(one, "left"), edge(one, "right")]);
      return lanes.map(([left, right]) => {
        const inside = (list) => list.filter((one) => edge(one, "left") >= left - 1 && edge(one, "left") < right - 1);
        return [Math.max(...inside(bars).map((one) => edge(one, "right"))),
          Math.min(...inside(texts).map((one) => edge(one, "left"))),
          Math.max(...inside(texts).map((one) => one.clientWidth)), right - left];
      });
    }""")
    assert len(found) == 2
    for last_bar, first_text, longest, lane in found:
        assert last_bar <= first_text
        assert longest > 60 and lane >= 169


def test_connections_have_client_ids(fake: FakeView, open_page: OpenPage) -> None:
    page = open_page(f"{fake.page}#/connections")
    expect(page.locator("main tbody tr").first).to_contain_text("etl-5")
    assert page.locator("main thead th").all_inner_texts()[1:3] == ["client id", "address"]


def test_list_is_sorted_by_a_column(fake: FakeView, open_page: OpenPage) -> None:
    """By its head, or by `s`, which offers latency first. Rows without a value are last; new rows are sorted in."""
    latencies = [5.0, 900.0, None, 70.0, 5.0]
    fake.rows_kept = [fake.row(number, latency=one) for number, one in enumerate(latencies, 1)]
    page = open_page(fake.page)
    expect(page.locator(".list [data-place]")).to_have_count(5)

    def ids() -> list[str]:
        return [one.split()[0] for one in page.locator(".list [data-place]").all_inner_texts()]

    page.locator(".list").focus()
    page.keyboard.press("s")
    page.wait_for_selector("dialog button:focus >> text=latency")
    page.keyboard.press("Enter")
    expect(page.locator("[aria-sort=descending]")).to_contain_text("latency")
    assert ids() == ["2", "4", "1", "5", "3"]
    page.keyboard.press("g")
    expect(page.locator(".row.selected")).to_contain_text("900 ms")
    fake.rows([fake.row(6, latency=2000.0)])
    expect(page.locator(".list [data-place]").first).to_contain_text("2.00 s")
    page.locator(".row.head button", has_text="latency").click()
    expect(page.locator("[aria-sort=ascending]")).to_have_count(1)
    assert ids() == ["1", "5", "4", "2", "6", "3"]
    page.locator(".row.head button", has_text="latency").click()
    expect(page.locator("[aria-sort]")).to_have_count(0)
    assert ids() == ["1", "2", "3", "4", "5", "6"]


def test_row_is_copied_as_json(fake: FakeView, open_page: OpenPage) -> None:
    fake.rows_kept = [fake.row(1, latency=2.5, errors=["NOT_LEADER_OR_FOLLOWER"])]
    page = open_page(fake.page)
    page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }")
    expect(page.locator(".list [data-place]")).to_have_count(1)
    page.locator(".list").focus()
    page.keyboard.press("j")
    page.keyboard.press("y")
    page.wait_for_function("() => window.copied")
    row = json.loads(page.evaluate("() => window.copied"))
    assert (row["id"], row["api"], row["latency"], row["errors"]) == ("0-1", "Produce", 2.5, ["NOT_LEADER_OR_FOLLOWER"])
    assert "place" not in row


def test_opened_capture_has_its_own_clock(fake: FakeView, open_page: OpenPage) -> None:
    """Of strip, percentiles and what was never answered; no percentile is above the longest latency of the list."""
    fake.answers["/api/sources"] = {"live": True, "may_open": True, "most": 4, "sources": [
        {"source": "s1", "name": "old.pcapng", "size": 10, "exchanges": 20, "missing": []}]}  # fmt: skip
    rows = [fake.row(number, id=f"s1-{number}", time=NOON + number, latency=513.0 if number == 19 else 2.0, rule_ms=1.0,
                     broker_ms=1.0, kproxy_ms=0.0) for number in range(20)]  # fmt: skip
    rows.append(fake.row(20, id="s1-20", time=NOON + 19.5, latency=None, outcome=None))
    fake.rows_kept = rows
    page = open_page(fake.page)
    fake.tick()
    page.locator(".sources button", has_text="old.pcapng").click()
    expect(page.locator(".axis span").first).to_have_text("12:26:40.000")
    expect(page.locator(".axis span").last).to_have_text("12:26:59.500")
    expect(page.locator(".by-api tbody tr")).to_have_count(1)
    table = " ".join(page.locator(".by-api tbody tr").inner_text().split())
    assert table == "Produce 1.1 2.0 2.0 513"
    expect(page.locator(".by-api .bar")).to_have_attribute("aria-label", "rules 50 %, the broker 50 %, kproxy 0 %")
    expect(page.locator(".row", has_text="under way")).to_have_count(1)
    page.keyboard.press("t")
    page.keyboard.press("t")
    expect(page.locator(".list [data-place]")).to_have_count(11)


def test_minute_shows_latency_with_its_parts(fake: FakeView, open_page: OpenPage) -> None:
    page = open_page(fake.page)
    fake.tick()
    row = page.locator(".by-api tbody tr").first
    expect(row).to_contain_text("Produce")
    expect(row.locator(".bar")).to_have_attribute("aria-label", "rules 23 %, the broker 74 %, kproxy 3 %")


def test_latency_charts_have_a_logarithmic_scale(fake: FakeView, open_page: OpenPage) -> None:
    """Which a button turns off; the time axis has its whole span from the first second on."""
    page = open_page(f"{fake.page}#/charts")
    fake.tick()
    page.wait_for_selector(".chart canvas")
    button = page.get_by_role("button", name="Log scale of latencies")
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    page.wait_for_selector(".chart canvas")


@pytest.mark.deep
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_axe_finds_nothing_in_narrow_windows(fake: FakeView, open_page: OpenPage, width: int, height: int) -> None:
    fake.details["0-1"] = detail()
    fake.rows_kept = [fake.row(1)]
    page = open_page(fake.page, viewport={"width": width, "height": height}, bypass_csp=True)
    fake.tick()
    expect(page.locator(".list [data-place]")).to_have_count(1)
    page.keyboard.press("j")
    page.wait_for_selector(".field")
    page.keyboard.press("s")
    page.wait_for_selector("dialog")
    found = violations(page)
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert (found, violations(page)) == ([], [])
