"""The admin application of a proxy that has no sockets, as the tests of the admin API have it."""

from __future__ import annotations

from tests.admin.conftest import api, logged, make_api

__all__ = ["api", "logged", "make_api"]
