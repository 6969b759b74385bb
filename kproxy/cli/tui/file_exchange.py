"""Exchanges of files as the view shows those of a proxy: rows of its stream, and details as its API gives them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kproxy.cli.exchange_input import AnyView
from kproxy.record.filter.view import ExchangeView
from kproxy.record.live_view.detail import detail_of
from kproxy.record.live_view.rows import event_row, max_wait

SOURCE = "file"


def row_of(ident: str, view: AnyView, changed: bool = False) -> list[Any]:
    """Return the row of an exchange; `kept` is False for an event, of which there are no frames. `changed`: other bytes
    passed at the broker."""
    if isinstance(view, ExchangeView):
        seen = view.seen
        first = seen.request or seen.response
        return event_row(ident, None if first is None else first.first, view.data, wait=max_wait(seen), changed=changed)
    return event_row(ident, seconds(view.data.get("request_in")), view.data, kept=False)


def seconds(stamp: Any) -> float | None:
    """Return the seconds since 1970 of a timestamp in an event, None without a right one."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def details(ident: str, view: AnyView, behind: AnyView | None = None) -> Mapping[str, Any]:
    """Return the details of an exchange; of an event that was recorded its data only. `behind`: as the broker saw it,
    None where that is the same."""
    if isinstance(view, ExchangeView):
        seen = behind.seen if isinstance(behind, ExchangeView) else None
        return detail_of(ident, view.data, view.seen, seen, source=SOURCE)
    return {"id": ident, "source": SOURCE, "event": dict(view.data), "request": None, "response": None, "records": []}
