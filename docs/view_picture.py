"""Screenshots of the live view for README.md and docs/live-view.md: both themes, traffic of the demo.

    python docs/view_picture.py        # writes docs/view-light.png and docs/view-dark.png

It needs Chromium (`KPROXY_CHROMIUM`, or Debian's) and Playwright, as the tests of the page do.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DOCS = Path(__file__).parent
CHROMIUM = os.environ.get("KPROXY_CHROMIUM", "/usr/bin/chromium")
WIDTH, HEIGHT = 1680, 1000
THEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
TRAFFIC = 60_000.0
"""Milliseconds of traffic before the picture is taken, so that the strip has something to show."""


def main() -> None:
    """Start the demo, and take both pictures."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "kproxy", "demo", "--keep"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as demo:
        try:
            address = page_of(demo)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM)
                pages = {theme: opened(browser, address, theme) for theme in THEMES}
                next(iter(pages.values())).wait_for_timeout(TRAFFIC)
                for theme, page in pages.items():
                    take(page, DOCS / f"view-{theme}.png")
                browser.close()
        finally:
            demo.send_signal(signal.SIGINT)


def page_of(demo: subprocess.Popen[str]) -> str:
    """Return the page's address, which the demo prints when it stays up."""
    assert demo.stdout is not None, "it was started so"
    for line in demo.stdout:
        if found := re.search(r"http://\S+/view/", line):
            return found[0]
    raise SystemExit("the demo has ended without the address of a page")


def opened(browser: Browser, address: str, theme: Literal["light", "dark"]) -> Page:
    """Return the page in a theme, following what passes."""
    page = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme).new_page()
    page.goto(address)
    page.wait_for_selector(".stream.live")
    return page


def take(page: Page, place: Path) -> None:
    """Choose a write that a rule has held up, mark the field whose name differs at the broker, and take the picture."""
    page.locator(".row", has_text="slow sometimes").filter(has_text="Produce").last.wait_for()
    page.keyboard.press("F")  # rows that move cannot be clicked at on a busy machine
    page.locator(".row", has_text="slow sometimes").filter(has_text="Produce").last.click()
    page.locator(".field.changed").first.click()
    page.mouse.move(WIDTH - 20, HEIGHT - 60)
    page.wait_for_timeout(500)
    page.screenshot(path=str(place))


if __name__ == "__main__":
    main()
