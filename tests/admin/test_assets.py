"""The files of the live view's page: open without a token, the same for all, with what a browser may do with them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from kproxy.admin.api import make_app
from kproxy.record.live_view.config import ViewConfig

MEDIA = {
    "": "text/html", "app.mjs": "text/javascript", "vendor/preact.mjs": "text/javascript", "view.css": "text/css",
    "vendor/NOTICE": "text/plain", "icon.svg": "image/svg+xml",
}  # fmt: skip
WEB = files("kproxy").joinpath("admin", "page")


@pytest.mark.trio
async def test_the_page_says_what_a_browser_may_do_with_it(api: Any) -> None:
    """Nothing but its own files runs, no text becomes markup, no other address is asked, no frame is around it."""
    for name, media in MEDIA.items():
        answer = await api("GET", f"/view/{name}", kind=None)
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))

        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, media)
        assert answer.body == WEB.joinpath(*(name or "index.html").split("/")).read_bytes()
        assert (policy["default-src"], policy["script-src"], policy["connect-src"]) == ("'none'", "'self'", "'self'")
        assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
        assert policy["frame-ancestors"] == "'none'" and "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.trio
async def test_a_file_that_the_browser_has_is_not_sent_again(api: Any) -> None:
    """It asks each time, by the tag that it got."""
    first = await api("GET", "/view/app.mjs", kind=None)
    again = await api("GET", "/view/app.mjs", kind=None, **{"if-none-match": f'"other", W/{first.headers["etag"]}'})

    assert (first.headers["cache-control"], again.status, again.body) == ("no-cache", 304, b"")
    assert again.headers["etag"] == first.headers["etag"]


@pytest.mark.trio
async def test_there_is_nothing_but_the_files(api: Any) -> None:
    """Neither other files of the package, nor folders; and nothing can be put there."""
    for path in ("/view/nothing.mjs", "/view/../detail.py", "/view/vendor", "/view/vendor/", "/view/%2e%2e/rows.py"):
        assert (await api("GET", path, kind=None)).status == 404, path
    assert (await api("PUT", "/view/app.mjs", "{}")).status == 405
    moved = await api("GET", "/view", kind=None)
    assert (moved.status, moved.headers["location"]) == (307, "view/")


@pytest.mark.trio
async def test_the_files_need_no_token_and_know_their_host(api: Any, make_api: Callable[..., Any]) -> None:
    """Without a token they are for this machine alone, as the data is; with one they are open, which the data is not.
    A link on another page may lead here."""
    refused = await api("GET", "/view/", kind=None, host="evil.example:9190")
    assert (refused.status, refused.code) == (403, "foreign_host")
    assert (await api("GET", "/view/", kind=None, **{"sec-fetch-site": "cross-site"})).status == 200

    guarded = make_api(token="s3cret")
    assert (await guarded("GET", "/view/", kind=None, host="kproxy.example")).status == 200
    assert (await guarded("GET", "/api/view", kind=None, host="kproxy.example")).status == 401


@pytest.mark.trio
async def test_a_view_that_is_turned_off_has_no_page(api: Any) -> None:
    """`view: {enabled: false}`."""
    api.backend.view = ViewConfig(enabled=False)
    api.app = make_app(api.backend, "127.0.0.1")

    assert (await api("GET", "/view/", kind=None)).code == "not_found"
