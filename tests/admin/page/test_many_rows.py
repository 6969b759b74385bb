"""The page with as many rows as kproxy ever tells it: 2,000 a second, for minutes."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.admin.page.conftest import OpenPage
from tests.admin.page.test_page import shown
from tests.support.fake_view import FakeView
from tests.support.wait import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

A_SECOND = 2000
SECONDS = 600 if os.environ.get("KPROXY_TEST_ALL") else 27  # more than the page keeps in any case
MOST_ROWS = 50_000
MOST_BYTES = 150_000_000
MOST_QUEUED = 4
PATIENCE = 60


@pytest.mark.deep
def test_many_rows_take_bounded_room(fake: FakeView, open_page: OpenPage) -> None:
    """The last 50,000 are there, those in sight are elements, and what the page needs is below 150 MB. They are sent as
    fast as the page takes them: it has no time of its own to make room. Minutes more change nothing."""
    page = open_page(fake.page)
    feed(fake, page, SECONDS)

    shown(page, MOST_ROWS)
    assert page.locator(".list .row").count() < 80
    assert memory(page) < MOST_BYTES


def feed(fake: FakeView, page: Page, seconds: int, pause: float = 0.0) -> None:
    """Tell the page rows, each with texts of its own, and what passed, second by second; with a `pause` of so many
    seconds behind each. Returns when the page has the last row."""
    (stream,) = fake.streams
    row = json.dumps(fake.row(123456789, about="topic-123456789[0]", client="client-12345678"))
    for second in range(seconds):
        rows = (
            row.replace("123456789", str(number)).replace("12345678", str(number % 700))
            for number in range(second * A_SECOND, (second + 1) * A_SECOND)
        )
        stream.put(f'event: rows\ndata: {{"rows": [{",".join(rows)}]}}\n\n'.encode())
        fake.tick(passed=A_SECOND)
        if pause:
            page.wait_for_timeout(1000 * pause)
        until(lambda: stream.qsize() < MOST_QUEUED, PATIENCE)
    last = f"{seconds * A_SECOND - 1:,}"
    page.wait_for_selector(f"text=/^{last}$/")


def memory(page: Page) -> int:
    """Return the bytes that the page needs, without what is garbage: objects, elements and arrays."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used: dict[str, Any] = session.send("Runtime.getHeapUsage")
    return int(used["usedSize"] + used.get("embedderHeapUsedSize", 0) + used.get("backingStorageSize", 0))
