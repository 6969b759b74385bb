"""Exchanges of a running proxy: the view's stream, taken up again after a break, and details by the admin API."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from kproxy.base.errors import DocumentError, InternalError
from kproxy.cli.admin_client import Admin, Refused, segment
from kproxy.record.filter.filter import Filter

from .sources import LOOK, SourceThread, Stopped

STREAM = "/api/view"
ROWS = 400
"""Rows a second that the proxy is asked for at most."""
PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds until a stream that broke is asked for again: the first, the second time … and always the last."""


class ProxySource:
    """Running proxy, asked by its admin API."""

    def __init__(self, admin: Admin) -> None:
        self.admin, self.name = admin, admin.url
        self.page = token_hex(16)

    def open(self, text: str) -> SourceThread:
        Filter(text)  # its mistake is better said at once; the proxy judges it again
        return ProxyThread(self.admin, text, self.page)

    def detail(self, ident: str) -> Mapping[str, Any]:
        found = self.admin("GET", f"/api/exchanges/{segment(ident)}")
        if not isinstance(found, dict):
            raise InternalError(f"what answers at {self.admin.url} is no kproxy")
        return found


class ProxyThread(SourceThread):
    """Thread that reads the stream of a proxy, and comes back to it when it breaks."""

    def __init__(self, admin: Admin, text: str, page: str) -> None:
        super().__init__("view of a proxy")
        self.admin, self.text, self.page = admin, text, page
        self.last = ""
        self.breaks = 0

    def read(self) -> None:
        while True:
            try:
                self.listen()
            except (Refused, DocumentError) as refusal:
                if not self.last or getattr(refusal, "code", "") not in ("too_many_listeners", "too_many_connections"):
                    raise
                self.wait(str(refusal))  # the proxy has not seen yet that the old stream is gone
            except InternalError as error:
                self.wait(str(error))

    def listen(self) -> None:
        """Read the stream until it breaks. Raises InternalError then, Refused when the proxy does not want it."""
        query = {"filter": self.text or None, "rows": ROWS, "page": self.page}
        for event in self.admin.events(STREAM, query, self.last):
            if not self.wanted:
                raise Stopped
            if not event.name:
                continue
            try:
                data = json.loads(event.data)
            except (ValueError, RecursionError):
                raise InternalError(f"what answers at {self.admin.url} is no kproxy") from None
            if isinstance(data, dict):
                self.last, self.breaks = event.id, 0
                self.put(event.name, data)

    def wait(self, why: str) -> None:
        """Say that the stream is broken, and wait before it is asked for again. Raises Stopped."""
        pause = PAUSES[min(self.breaks, len(PAUSES) - 1)]
        self.breaks += 1
        self.put("state", {"text": f"{why}; again in {pause:g} s", "good": False})
        until = time.monotonic() + pause
        while (left := until - time.monotonic()) > 0:
            if not self.wanted:
                raise Stopped
            time.sleep(min(LOOK, left))
