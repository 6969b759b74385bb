"""The page in a browser, beside a stand-in for kproxy that says what each test needs."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

from tests.admin.page.conftest import OpenPage, expect
from tests.support.fake_view import FakeView
from tests.support.wait import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>\u202e{{7*7}}'
"""A client id, a topic and a group as somebody would choose them who wants to run code in the page."""


def cells(page: Page, row: int = 1) -> str:
    """Return the text of a row of the list, from 1."""
    return " ".join(page.locator(f".list .row:not(.head) >> nth={row - 1}").inner_text().split())


def shown(page: Page, count: int) -> None:
    """Wait until the list has so many rows."""
    page.wait_for_function("n => +document.querySelector('.list')?.getAttribute('aria-rowcount') === n + 1", arg=count)


def test_rows_are_shown_as_they_come(fake: FakeView, open_page: OpenPage) -> None:
    """What was kept before, then what passes; errors with their names, what is under way without an end."""
    fake.rows_kept = [
        fake.row(1), fake.row(2, errors=["NOT_LEADER_OR_FOLLOWER"], rules=["third write fails"], changed=True)
    ]  # fmt: skip
    page = open_page(fake.page)
    shown(page, 2)
    assert cells(page, 1).startswith("1 ")
    assert "etl-3 Produce v9 orders[3] 2 210 64 2.5 ms" in cells(page, 1)
    assert "NOT_LEADER_OR_FOLLOWER third write fails⇄" in cells(page, 2)
    assert "⇄" not in cells(page, 1)

    fake.rows([fake.row(3, outcome=None, latency=None, response=None, responder=None)])
    shown(page, 3)
    assert "under way" in cells(page, 3)
    fake.rows([fake.row(3, latency=1500.0)])
    page.wait_for_selector("text=1.50 s")
    shown(page, 3)


def test_what_traffic_says_is_text(fake: FakeView, open_page: OpenPage) -> None:
    """Names that are markup and script are shown as they are written, wherever they stand."""
    fake.rows_kept = [fake.row(1, client=HOSTILE, about=HOSTILE, topic=HOSTILE, group=HOSTILE, principal=HOSTILE,
                               rules=[HOSTILE], errors=[HOSTILE])]  # fmt: skip
    page = open_page(fake.page)
    shown(page, 1)
    page.keyboard.press("j")
    page.wait_for_selector(".details")
    page.keyboard.press("o")
    page.wait_for_selector("dialog")

    expect(page.locator(".list .row:not(.head)")).to_contain_text(HOSTILE.replace("\u202e", "\\u202e"))
    assert page.evaluate("!/[\\u200b-\\u200f\\u202a-\\u202e]/.test(document.body.innerText)"), "unseen letters"
    assert page.evaluate("[...document.querySelectorAll('[title]')].every((one) => !one.title.includes('\\u202e'))")
    assert page.evaluate("document.querySelectorAll('img, script:not([src])').length") == 0
    assert page.title() == "kproxy live view"


def test_a_filter_is_judged_before_it_is_in_force(fake: FakeView, open_page: OpenPage) -> None:
    """A mistake is told with its place, and the filter before stays; a right one is asked of the proxy."""
    page = open_page(fake.page)
    page.wait_for_selector(".stream.live + span")
    page.keyboard.press("f")
    page.keyboard.type("~k produce and latncy > 1")
    page.wait_for_selector(".judged .bad")
    page.keyboard.press("Enter")
    expect(page.locator(".judged")).to_contain_text("latncy")
    assert fake.filters == [""]

    page.locator(".filter input").fill("")
    page.keyboard.type("~k prod")
    page.wait_for_selector(".offers li:not([hidden])")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash.includes('f=')")
    page.get_by_role("button", name="errors", exact=True).click()
    page.wait_for_function("() => document.querySelector('.chip').getAttribute('aria-pressed') === 'true'")
    page.wait_for_selector(".stream.live + span")

    until(lambda: fake.filters[1] == "~k Produce")
    until(lambda: fake.filters[-1] == "(~k Produce) and (error or pending)")


def test_a_pause_keeps_what_comes(fake: FakeView, open_page: OpenPage) -> None:
    """It is counted meanwhile, and added when the page goes on."""
    fake.rows_kept = [fake.row(1)]
    page = open_page(fake.page)
    shown(page, 1)
    page.keyboard.press("p")
    fake.rows([fake.row(number) for number in range(2, 1206)])
    page.wait_for_selector("text=1,204 new")
    shown(page, 1)
    page.keyboard.press("p")
    shown(page, 1205)


def test_following_ends_when_a_row_is_chosen(fake: FakeView, open_page: OpenPage) -> None:
    """While it follows the newest row is in sight; then nothing moves any more, until F."""
    fake.rows_kept = [fake.row(number) for number in range(1, 301)]
    page = open_page(fake.page)
    shown(page, 300)
    page.wait_for_selector("text=/^300$/")
    page.keyboard.press("k")
    page.wait_for_selector(".details")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    top = page.evaluate("document.querySelector('.list').scrollTop")
    fake.rows([fake.row(number) for number in range(301, 401)])
    shown(page, 400)
    assert page.evaluate("document.querySelector('.list').scrollTop") == top
    page.keyboard.press("F")
    page.wait_for_selector("text=/^400$/")


def test_left_out_and_gaps_are_told(fake: FakeView, open_page: OpenPage) -> None:
    """In the head with their reasons, and at their place in the list; rates count all."""
    page = open_page(fake.page)
    page.wait_for_selector(".stream.live + span")
    fake.tick()
    fake.tell("left", {"not_looked_at": 2048, "too_many": 66, "too_slow": 0, "unknown": 0, "why": ""})
    fake.tell("gap", {"why": "worker restarted", "missing": 812})
    page.wait_for_selector("text=812 rows are missing: worker restarted")

    assert "1,842/s 13/s match" in " ".join(page.locator(".now").inner_text().split())
    expect(page.locator(".now >> text=skipped")).to_have_text("skipped 2,114")
    assert "2,048 skipped by the CPU limit" in page.locator(".now >> text=skipped").get_attribute("title")
    expect(page.locator("aside")).to_contain_text("Produce")


def test_the_stream_is_taken_up_again(fake: FakeView, open_page: OpenPage) -> None:
    """From the last event that the page has seen, without anybody's help."""
    asked: list[str | None] = []
    page = open_page(fake.page)
    page.wait_for_selector(".stream.live + span")
    page.on("request", lambda one: asked.append(one.headers.get("last-event-id")) if "/api/view" in one.url else None)
    fake.rows([fake.row(1)])
    fake.tell("rows", {"rows": [fake.row(2)]}, "3f9c.0-7712")
    shown(page, 2)
    fake.cut()
    page.wait_for_function("() => document.querySelector('.stream.live') === null")
    page.wait_for_selector(".stream.live + span")
    fake.rows([fake.row(3)])

    shown(page, 3)
    assert asked == ["3f9c.0-7712"]


def test_a_time_is_chosen_in_the_strip(fake: FakeView, open_page: OpenPage) -> None:
    """By a drag, or by keys; the list shows what began in it."""
    fake.rows_kept = [fake.row(number, time=time() - 100 + number) for number in range(1, 101)]
    page = open_page(fake.page)
    shown(page, 100)
    fake.tick()
    page.wait_for_selector(".strip polygon", state="attached")
    box = page.locator(".strip svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 20)
    page.mouse.up()
    page.wait_for_function("() => +document.querySelector('.list').getAttribute('aria-rowcount') < 60")
    assert 25 < page.evaluate("+document.querySelector('.list').getAttribute('aria-rowcount')") < 35

    page.get_by_role("button", name="chosen time ×").click()
    shown(page, 100)


def test_search_goes_from_row_to_row(fake: FakeView, open_page: OpenPage) -> None:
    """In the rows that are here, without asking the proxy."""
    fake.rows_kept = [fake.row(number, client="needle" if number % 40 == 0 else "hay") for number in range(1, 101)]
    page = open_page(fake.page)
    shown(page, 100)
    page.keyboard.press("/")
    page.keyboard.type("needl")
    page.wait_for_selector("text=2 of 100 rows here")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=/^Exchange 0-40/")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=/^Exchange 0-80/")
    page.keyboard.press("Escape")
    page.keyboard.press("N")
    page.wait_for_selector("text=/^Exchange 0-40/")


def test_a_token_is_asked_for_once(fake: FakeView, open_page: OpenPage) -> None:
    """It stays in the tab, in no address; a wrong one is told."""
    fake.token = "secret"
    fake.rows_kept = [fake.row(1)]
    page = open_page(fake.page, live=False)
    page.wait_for_selector("dialog.login")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=The token before was not taken")
    page.locator("dialog.login input").fill("secret")
    page.keyboard.press("Enter")
    shown(page, 1)
    page.reload()
    shown(page, 1)

    assert "secret" not in page.url
    assert not any("secret" in path for path in fake.seen)


def test_who_may_only_look_sees_nothing_that_changes(fake: FakeView, open_page: OpenPage) -> None:
    """Neither buttons nor keys."""
    fake.may_write = False
    fake.rows_kept = [fake.row(1)]
    page = open_page(fake.page)
    shown(page, 1)
    page.wait_for_selector(".stream.live + span")
    page.keyboard.press("j")
    page.wait_for_selector("aside >> text=Connection 17")

    for words in ("Disable faults", "Recycle", "Close"):
        assert page.get_by_role("button", name=words).count() == 0
    page.keyboard.press("K")
    page.keyboard.press("?")
    page.wait_for_selector("dialog")
    assert "Disable faults" not in page.locator("dialog").inner_text()
    assert fake.changes == []


def test_faults_are_killed_after_one_question(fake: FakeView, open_page: OpenPage) -> None:
    """O3: one key, and a question whose first choice changes nothing."""
    fake.answers["/api/faults/disable"] = {"faults": [{"name": "slow sometimes"}], "disabled": True}
    page = open_page(fake.page)
    page.wait_for_selector("text=Disable faults")
    page.keyboard.press("K")
    page.wait_for_selector("dialog")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=off: slow sometimes")

    until(lambda: fake.changes == [("POST", "/api/faults/disable", None)])


def test_following_a_connection_shows_its_lanes(fake: FakeView, open_page: OpenPage) -> None:
    """A crumb in the filter bar, and lanes with requests and answers."""
    fake.rows_kept = [fake.row(number, connection=17 + number % 2, group="billing") for number in range(1, 21)]
    page = open_page(fake.page)
    shown(page, 20)
    page.keyboard.press("j")
    page.keyboard.press("o")
    page.wait_for_selector("dialog")
    page.get_by_role("button", name="group billing").click()
    page.wait_for_selector(".chip.crumb")
    until(lambda: fake.filters[-1] == 'group ~ "^billing$"')
    page.keyboard.press("Y")
    page.wait_for_selector(".lane-heads h3 >> nth=1")

    expect(page.locator(".lane-heads h3")).to_have_count(2)
    expect(page.locator(".moment")).to_have_count(40)


def test_views_beside_the_list(fake: FakeView, open_page: OpenPage) -> None:
    """Connections, topology and charts, by their numbers."""
    page = open_page(fake.page)
    page.wait_for_selector(".stream.live + span")
    fake.tick()
    page.keyboard.press("2")
    page.wait_for_selector("text=3 connections")
    expect(page.locator("main")).to_contain_text("librdkafka/2.10.0")
    expect(page.locator("main .ended tbody tr")).to_have_count(2)
    expect(page.locator("main .ended")).to_contain_text("11 s")
    expect(page.locator("main .ended")).to_contain_text("client: Connection reset by peer, with requests in flight")
    page.keyboard.press("3")
    page.wait_for_selector("text=kafka.edge.example:19092")
    expect(page.locator(".map .lines path[d]")).to_have_count(4)
    page.goto(f"{fake.page}#/charts")
    page.wait_for_selector(".chart canvas")
    fake.tick()
    page.wait_for_selector("text=p99 by API")
