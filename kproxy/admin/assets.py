"""Files of the live view's page: `/view/` and what is below it.

They are the files of `kproxy/admin/page`, the same for everybody and without any data, so they are open
without a token; what the page shows it asks the API for, with the token that whoever looks gives it. Without a token
the Host header must name this machine, as everywhere here (`guard.py`).

What a browser may do with them is said with each: no script but these files, no markup made of text (Trusted Types), no
network but this address, no frame around the page. All that traffic says is put into text nodes; these headers hold
where a mistake would put it elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

import trio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from kproxy.runtime.rules.keeper import DOCUMENTS

from .guard import AdminTokens, Guard, check_host
from .problem import Problem

PAGE = "/view/"
INDEX = "index.html"
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}
"""Media types by the ending of a file's name."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
"""Content-Security-Policy of every file."""
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""Content-Security-Policy of all other answers, which are no pages."""
SAFE = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked again each time: a page of another version of kproxy would not fit its API
}


@dataclass(frozen=True, slots=True)
class Asset:
    """File of the page: its bytes, media type and ETag."""

    data: bytes
    media: str
    etag: str


def make_page_guard(tokens: AdminTokens, host: str) -> Guard:
    """Return the guard of the page's files. Where a token guards the data, the page may be open under any name, behind
    a reverse proxy too. A link to the page on some other page may be followed."""

    def check(request: Request) -> bool:
        if tokens.full is None:
            check_host(request, host)
        return False

    return check


async def page_file(request: Request) -> Response:
    """Answer with a file of the page, or with 304 where the browser has it already. Raises Problem."""
    assets = await trio.to_thread.run_sync(all_assets, limiter=DOCUMENTS)
    asset = assets.get(request.path_params["file"] or INDEX)
    if asset is None:
        raise Problem(404, "not_found", f"there is no {request.scope['path']} here")
    headers = {**SAFE, "ETag": asset.etag}
    if asset.etag in [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(asset.data, media_type=asset.media, headers=headers)


async def to_page(request: Request) -> Response:
    """Answer with a redirection to the page, whose files are named relative to it."""
    return RedirectResponse("view/", headers=SAFE)  # relative, as a reverse proxy may have put all of it below a path


@cache
def all_assets() -> dict[str, Asset]:
    """Read all files of the page; some 300 kB by their paths below `web`."""
    return dict(below(files("kproxy").joinpath("admin", "page"), ""))


def below(folder: Traversable, path: str) -> list[tuple[str, Asset]]:
    """Return the files in a folder and in those inside it, with their paths."""
    found: list[tuple[str, Asset]] = []
    for one in folder.iterdir():
        if one.is_dir():
            found += below(one, f"{path}{one.name}/")
        else:
            data = one.read_bytes()
            media = TYPES.get(one.name.rpartition(".")[2], TYPES[""]) if "." in one.name else TYPES[""]
            found.append((f"{path}{one.name}", Asset(data, media, f'"{sha256(data).hexdigest()[:32]}"')))
    return found
