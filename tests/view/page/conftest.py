"""What tests of the page share: one browser, and pages whose console must stay silent and that ask nobody else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fake_view import FakeView

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page
    from playwright.sync_api._generated import LocatorAssertions

CHROMIUM = os.environ.get("KPROXY_CHROMIUM", "/usr/bin/chromium")
PATIENCE = 15_000  # milliseconds; much less is usual
WIDE = {"width": 1680, "height": 1000}

REFUSAL = "Failed to load resource"
"""What browsers themselves write of each answer that is no success, and of a server that is gone."""
OpenPage = Callable[..., "Page"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, which Playwright drives; none is downloaded."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens pages in browsers of their own. What the policy of the page forbids is told on its console, so that has to
    stay silent; no request may leave its origin."""
    said: list[str] = []
    contexts = []

    def open_page(url: str, *, theme: str = "light", live: bool = True, **context: Any) -> Page:
        """`live`: wait until the page has its stream, and knows what may be changed."""
        made = browser.new_context(
            viewport=context.pop("viewport", WIDE), color_scheme=theme, timezone_id="UTC", **context
        )
        contexts.append(made)
        page = made.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda one: None if REFUSAL in one.text else said.append(f"{one.type}: {one.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        origin = url.split("/view/", maxsplit=1)[0]
        page.on("request", lambda one: None if own(one.url, origin) else said.append(f"asks {one.url}"))
        page.goto(url)
        if live:
            page.wait_for_selector(".stream.live")
        return page

    yield open_page
    for one in contexts:
        one.close()
    assert said == []


def expect(found: Locator) -> LocatorAssertions:
    """Return what waits until a part of a page is as it should be."""
    from playwright import sync_api  # which is missing where there is no browser either

    sync_api.expect.set_options(timeout=PATIENCE)
    return sync_api.expect(found)


def own(url: str, origin: str) -> bool:
    """Return True for an address of the page's own origin, or of what it made itself."""
    return url.startswith((f"{origin}/", f"blob:{origin}/", "data:"))


@pytest.fixture
def fake() -> Iterator[FakeView]:
    """A stand-in for kproxy's admin address."""
    with FakeView() as fake:
        yield fake
