"""Keys of the page that change something: two keys in the list do not, and Enter answers each question with no."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.admin.page.conftest import OpenPage, expect
from tests.admin.page.test_held import held, hold, sent, shown
from tests.admin.page.test_rules_page import rules
from tests.admin.page.test_send_again import ASKS, SEND, detail, refuse
from tests.support.fake_view import FakeView

if TYPE_CHECKING:
    from playwright.sync_api import Page

KEYS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-<>[]/?"
SECOND = ("Enter", "Space", "same")
QUESTIONS = {
    "r": "Send exchange 0-1 again?",
    "K": "Disable faults",
    "I": "Turn intercepts off?",
    "i": "Intercept these",
}
HELD_QUESTIONS = {"x": "Drop Heartbeat v4", "X": "Close Heartbeat v4"}


@pytest.fixture
def page(fake: FakeView, open_page: OpenPage) -> Page:
    """With one row, one held frame, an intercept rule and a capture folder."""
    fake.details["0-1"] = detail(1)
    fake.answers["/api/rules"] = rules({"name": "hold", "kind": "intercept"})
    fake.answers["/api/captures"] = {"folder": "captures", "captures": []}
    fake.answers["/api/held"] = {"held": [], "max_frames": 20, "passed_over": 0}
    fake.answers["/api/held/17-1"] = shown()
    refuse(fake, 409, "confirm_first", ASKS)
    fake.rows([fake.row(1)])  # before the page opens: a stream that opens at the same time repeats the row
    page = open_page(fake.page)
    hold(fake, page, held())
    expect(page.locator(".list .row:not(.head)")).to_have_count(1)
    return page


def to_list(page: Page) -> None:
    """Close what is open, and focus the list with its first row chosen."""
    for _ in range(3):
        page.keyboard.press("Escape")
    page.evaluate("() => { location.hash = '#/exchanges'; }")
    page.locator(".list").focus()
    page.keyboard.press("g")


@pytest.mark.deep
@pytest.mark.parametrize("second", SECOND)
def test_two_keys_in_the_list_change_nothing(fake: FakeView, page: Page, second: str) -> None:
    """A request to send again is only requested, and refused without its API.

    Each key is the first one with one of the second keys; with KPROXY_TEST_ALL=1 with each of them.
    """
    page.evaluate("() => { HTMLInputElement.prototype.click = () => {}; }")  # no file chooser
    for key in KEYS if os.environ.get("KPROXY_TEST_ALL") else KEYS[SECOND.index(second) :: len(SECOND)]:
        to_list(page)
        page.keyboard.press(key)
        page.wait_for_timeout(10)
        page.keyboard.press(key if second == "same" else second)
        page.wait_for_timeout(10)
    written = [(method, path, body) for method, path, body in fake.changes if not (path == SEND and body is None)]
    assert [one for one in written if "/check" not in one[1]] == []


@pytest.mark.parametrize("key", QUESTIONS)
def test_questions_focus_the_safe_choice(fake: FakeView, page: Page, key: str) -> None:
    to_list(page)
    page.keyboard.press(key)
    expect(page.locator("dialog h2")).to_have_text(QUESTIONS[key])
    expect(page.locator("dialog button:focus")).to_have_text("Cancelesc")
    before = len(fake.changes)
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_have_count(0)
    assert len(fake.changes) == before


@pytest.mark.parametrize("key", HELD_QUESTIONS)
def test_questions_about_a_held_frame_focus_cancel(fake: FakeView, page: Page, key: str) -> None:
    page.locator(".held-frame").focus()
    page.keyboard.press(key)
    expect(page.locator("dialog h2")).to_contain_text(HELD_QUESTIONS[key])
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_have_count(0)
    assert fake.changes == []


@pytest.mark.parametrize(
    ("view", "key"), [("connections", "r"), ("connections", "X"), ("rules", "x"), ("captures", "s")]
)
def test_questions_of_other_views_focus_cancel(fake: FakeView, page: Page, view: str, key: str) -> None:
    page.evaluate("view => { location.hash = `#/${view}`; }", view)
    page.wait_for_selector(f".view-{view}")
    if view != "captures":
        page.wait_for_selector(".table tbody tr")
        page.keyboard.press("j")
    page.keyboard.press(key)
    expect(page.locator("dialog button:focus")).to_have_text("Cancelesc")
    page.keyboard.press("Enter")
    expect(page.locator("dialog")).to_have_count(0)
    assert fake.changes == []


def test_choice_in_a_view_is_forgotten_when_it_is_left(fake: FakeView, page: Page) -> None:
    """So two keys in the list, one that opens the view and one that acts, change no rule."""
    page.evaluate("() => { location.hash = '#/rules'; }")
    page.wait_for_selector(".table tbody tr")
    page.keyboard.press("j")
    expect(page.locator("tr[aria-selected=true]")).to_have_count(1)
    to_list(page)
    page.evaluate("() => { location.hash = '#/rules'; }")
    page.wait_for_selector(".table tbody tr")
    expect(page.locator("tr[aria-selected=true]")).to_have_count(0)
    page.keyboard.press("t")
    page.wait_for_timeout(50)
    assert fake.changes == []


def test_intercepts_are_turned_off_after_a_question(fake: FakeView, page: Page) -> None:
    fake.answers["/api/rules/hold/disable"] = {}
    to_list(page)
    page.keyboard.press("I")
    expect(page.locator("dialog")).to_contain_text("Frames that they hold are resumed: hold.")
    page.locator("dialog button.warns").click()
    assert sent(fake, page, "/api/rules/hold/disable") is None
    assert [path for _, path, _ in fake.changes] == ["/api/rules/hold/disable"]


def test_view_of_held_frames_has_keys_of_its_own(fake: FakeView, page: Page) -> None:
    """j and k choose a frame; after a decision the focus is on the next one."""
    frames: list[dict[str, Any]] = [held(), held("18-1", exchange={**held()["exchange"], "correlation_id": 2})]
    hold(fake, page, *frames)
    fake.answers["/api/held/17-1/resume"] = held(gone="resumed")
    page.evaluate("() => { location.hash = '#/held'; }")
    page.wait_for_selector(".page .held-frame >> nth=1")
    page.keyboard.press("a")
    assert fake.changes == []
    page.keyboard.press("j")
    expect(page.locator(".page .held-frame:focus")).to_have_count(1)
    fake.answers["/api/held"] = {"held": frames[1:], "max_frames": 20, "passed_over": 0}
    page.keyboard.press("a")
    assert sent(fake, page, "/api/held/17-1/resume") == {"revision": 1}
    expect(page.locator(".page .held-frame")).to_have_count(1)
    expect(page.locator(".page .held-frame:focus")).to_have_count(1)
