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
PATIENCE = 60_000  # milliseconds; much less is usual, except where others have the machine
WIDE = {"width": 1680, "height": 1000}

REFUSAL = "Failed to load resource"
"""What browsers themselves write of each answer that is no success, and of a server that is gone."""
KEEP_NOTICES = """window.notices = [];
const keep = () => notices.push(...[...document.querySelectorAll('[role=status]')].map((one) => one.textContent));
new MutationObserver(keep).observe(document, {subtree: true, childList: true, characterData: true});"""
OpenPage = Callable[..., "Page"]


class SharedBrowser:
    """Chromium of Debian, started by Playwright at first use. All files of this folder share it."""

    def __init__(self) -> None:
        self._playwright: Any = None
        self._browser: Browser | None = None

    def get(self) -> Browser:
        """Return the browser. Its asyncio loop runs until `close`, so no other test of the process can start one."""
        from playwright.sync_api import sync_playwright

        if self._browser is None:
            self._playwright = sync_playwright().start()
            self._browser = self._playwright.chromium.launch(executable_path=CHROMIUM, args=["--disable-gpu"])
        return self._browser

    def close(self) -> None:
        if self._browser is not None:
            self._browser.close()
            self._playwright.stop()
            self._browser = None


SHARED = SharedBrowser()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """Close the browser after the last test of this folder."""
    yield
    if nextitem is None or not nextitem.nodeid.startswith("tests/admin/page/"):
        SHARED.close()


@pytest.fixture(scope="module")
def browser() -> Browser:
    return SHARED.get()


@pytest.fixture(scope="module")
def spare(browser: Browser) -> Iterator[Page]:
    """A page that tests use one after the other: a process that has loaded the program once loads it again in half the
    time."""
    context = browser.new_context(viewport=WIDE, color_scheme="light", timezone_id="UTC")
    context.add_init_script(KEEP_NOTICES)
    yield context.new_page()
    context.close()


def wait_for_notice(page: Page, text: str) -> None:
    """Wait until a notice with this text was shown. A notice disappears after 6 s, which a busy machine can miss."""
    page.wait_for_function("text => notices.some((one) => one.includes(text))", arg=text)


@pytest.fixture
def open_page(browser: Browser, spare: Page) -> Iterator[OpenPage]:
    """Opens pages whose browsers know of nothing before. What the policy of the page forbids is told on its console, so
    that has to stay silent; no request may leave its origin."""
    said: list[str] = []
    contexts = []
    opened: list[Page] = []
    origins: set[str] = set()
    watched: dict[Any, Callable[[Any], None]] = {
        "console": lambda one: None if REFUSAL in one.text else said.append(f"{one.type}: {one.text}"),
        "pageerror": lambda error: said.append(str(error)),
        "request": lambda one: None if any(own(one.url, each) for each in origins) else said.append(f"asks {one.url}"),
    }  # fmt: skip

    def open_page(url: str, *, live: bool = True, **context: Any) -> Page:
        """`live`: wait until the page has its stream, and knows what may be changed. `context`: what its browser has of
        its own."""
        if context or opened:
            made = browser.new_context(**{"viewport": WIDE, "timezone_id": "UTC", **context})
            made.add_init_script(KEEP_NOTICES)
            contexts.append(made)
            page = made.new_page()
        else:
            page = spare
        opened.append(page)
        origins.add(url.split("/view/", maxsplit=1)[0])
        page.set_default_timeout(PATIENCE)
        for event, tell in watched.items():
            page.on(event, tell)
        page.goto(url)
        if live:
            page.wait_for_selector(".stream.live + span")
        return page

    yield open_page
    for one in contexts:
        one.close()
    if spare in opened:
        for event, tell in watched.items():
            spare.remove_listener(event, tell)
        spare.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        spare.goto("about:blank")
    assert said == []


def expect(found: Locator) -> LocatorAssertions:
    """Return what waits until a part of a page is as it should be."""
    from playwright import sync_api  # which is missing where there is no browser either

    sync_api.expect.set_options(timeout=PATIENCE)
    return sync_api.expect(found)


def tab_to(page: Page, place: str) -> None:
    """Move the focus by Tab until it is at a part of the page, as people do who have no mouse."""
    for _ in range(80):
        if page.evaluate("place => document.activeElement?.matches(place) ?? false", place):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not lead to {place}")


def own(url: str, origin: str) -> bool:
    """Return True for an address of the page's own origin, or of what it made itself."""
    return url.startswith((f"{origin}/", f"blob:{origin}/", "data:"))


@pytest.fixture
def fake() -> Iterator[FakeView]:
    """A stand-in for kproxy's admin address."""
    with FakeView() as fake:
        yield fake
