"""Frames that rules hold in a running proxy, seen and let go over its API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from kproxy.base.errors import DocumentError
from kproxy.cli.admin_client import Admin, Refused
from kproxy.testing.process import Proxy
from tests.support.raw_client import RawClient
from tests.support.wait import until


@dataclass
class Running:
    """A proxy, its API, and three clients."""

    proxy: Proxy
    admin: Admin
    clients: list[RawClient]

    def post(self, path: str, **body: Any) -> Any:
        return self.admin("POST", f"/api/held/{path}", json.dumps(body).encode())

    def held(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.admin("GET", "/api/held")["held"]
        return found

    def refused(self, path: str, **body: Any) -> tuple[str, str]:
        with pytest.raises((Refused, DocumentError)) as caught:
            self.post(path, **body)
        return getattr(caught.value, "code", "invalid"), str(caught.value)

    def one(self) -> dict[str, Any]:
        """Return the only frame that is held, as soon as it is."""
        until(lambda: len(self.held()) == 1)
        return self.held()[0]

    def put(self, name: str, **rule: Any) -> None:
        """Add a rule, or change it."""
        self.admin("PUT", f"/api/rules/{name}", json.dumps(rule).encode())
