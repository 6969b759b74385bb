"""A request that is sent again from the page: asked back by name, and the new exchange says what it is from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.admin.page.conftest import OpenPage, expect
from tests.admin.page.test_held import sent
from tests.support.fake_view import FakeView

if TYPE_CHECKING:
    from playwright.sync_api import Page

SEND = "/api/exchanges/0-1/send"
HOSTILE = "<img src=x onerror=alert(1)>"
ASKS = 'Produce changes what is stored or set: to send it again, say so with {"confirm": "Produce"}'


def detail(number: int, **more: Any) -> dict[str, Any]:
    event = {"api": "Produce", "version": 9, "outcome": "answered", "latency_ms": 2.5, "rules": []}
    return {"id": f"0-{number}", "source": "live", "again_of": None, "event": event, "request": None, "response": None,
            "records": [], **more}  # fmt: skip


@pytest.fixture
def page(fake: FakeView, open_page: OpenPage) -> Page:
    """With one Produce, which is chosen."""
    fake.details["0-1"] = detail(1)
    page = open_page(fake.page)
    fake.rows([fake.row(1)])
    expect(page.locator(".list .row:not(.head)")).to_have_count(1)
    page.keyboard.press("j")
    expect(page.locator(".details h2")).to_contain_text("Exchange 0-1")
    return page


def refuse(fake: FakeView, status: int, code: str, message: str) -> None:
    fake.refused[SEND] = status, {"error": {"code": code, "message": message, "mistakes": []}}


def test_it_is_asked_back_by_name(fake: FakeView, page: Page) -> None:
    """By keys alone; the new exchange is chosen, has its mark, and leads back."""
    refuse(fake, 409, "confirm_first", ASKS)
    page.keyboard.press("r")
    expect(page.locator("dialog h2")).to_have_text("Send exchange 0-1 again?")
    expect(page.locator("dialog p.text").first).to_have_text(
        "Produce changes what is stored or set. Subject: orders[3], with 2 records. It goes to the cluster through "
        "listener main, under the rules in force now."
    )
    assert not sent(fake, page, SEND)
    expect(page.locator("dialog button.warns")).to_be_disabled()
    del fake.refused[SEND]
    fake.answers[SEND] = {"id": "0-9", "again_of": "0-1", "outcome": "answered", "reason": "", "seconds": 0.0031,
                          "notes": [HOSTILE]}  # fmt: skip
    fake.details["0-9"] = detail(9, again_of="0-1")
    fake.changes.clear()
    page.keyboard.press("Shift+Tab")
    page.keyboard.type("produce")
    expect(page.locator("dialog button.warns")).to_be_disabled()
    page.locator("dialog input").fill("Produce")
    expect(page.locator("dialog button.warns")).to_be_enabled()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".details h2")).to_contain_text("sent again from exchange 0-1")
    assert sent(fake, page, SEND) == {"confirm": "Produce"}
    expect(page.locator("footer [role=status]")).to_have_text(
        f"Produce of exchange 0-1 was sent again: answered in 3.1 ms · {HOSTILE}"
    )
    fake.rows([fake.row(9, again_of="0-1")])
    expect(page.locator(".row.selected")).to_contain_text("↻")
    expect(page.locator(".row.selected")).to_contain_text("sent again")
    page.locator(".details .again button").click()
    expect(page.locator(".details h2")).to_contain_text("Exchange 0-1")


def test_escape_sends_nothing(fake: FakeView, page: Page) -> None:
    """A second r asks once more."""
    refuse(fake, 409, "confirm_first", ASKS)
    for _ in range(2):
        page.keyboard.press("r")
        expect(page.locator("dialog")).to_have_count(1)
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)
    assert [body for _, _, body in fake.changes] == [None, None]  # nothing is confirmed


@pytest.mark.parametrize(
    ("code", "words"),
    [("exchange_gone", "exchange 0-1 is not kept any more"), ("cannot_log_in", "listener main asks for a login"),
     ("not_let_in", HOSTILE)],
)  # fmt: skip
def test_why_it_cannot_be_sent_is_said(fake: FakeView, page: Page, code: str, words: str) -> None:
    refuse(fake, 409, code, words)
    page.locator(".details .actions button", has_text="Send again").click()
    expect(page.locator("footer .notice.bad")).to_have_text(words)
    expect(page.locator("dialog")).to_have_count(0)


def test_who_may_only_look_has_no_button(fake: FakeView, open_page: OpenPage) -> None:
    """Nor the key."""
    fake.may_write, fake.details["0-1"] = False, detail(1)
    page = open_page(fake.page)
    fake.rows([fake.row(1)])
    expect(page.locator(".list .row:not(.head)")).to_have_count(1)
    page.keyboard.press("j")
    expect(page.locator(".details .actions button", has_text="Save")).to_have_count(1)
    expect(page.locator(".details .actions button", has_text="Send again")).to_have_count(0)
    page.keyboard.press("r")
    page.keyboard.press("E")
    expect(page.locator("[aria-pressed=true]", has_text="errors")).to_have_count(1)
    assert fake.changes == []
