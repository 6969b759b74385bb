"""The request of an exchange, sent again by the proxy that kept it; what changes something is asked back by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kproxy.cli.admin_client import Refused, segment
from kproxy.cli.exchange_rows import milliseconds

from .host import ViewHost


def send_again(host: ViewHost, ident: str, api: str, show: Callable[[str], None], what: str, confirm: str = "") -> None:
    """Have a request sent again, and `show` the new exchange. `what`: the request in words.

    `confirm`: its API, typed by the user, which the proxy needs for a request that changes something.
    """
    admin = host.admin
    if admin is None:
        host.say("files are only looked at: a running proxy can send", good=False)
        return

    def ask() -> Any:
        body = json.dumps({"confirm": confirm} if confirm else {}).encode()
        try:
            return admin("POST", f"/api/exchanges/{segment(ident)}/send", body)
        except Refused as refusal:
            if confirm or refusal.code != "confirm_first":
                raise
            return refusal

    def answered(found: Any) -> None:
        if isinstance(found, Refused):
            why = str(found).partition(":")[0]
            host.confirm(f"{why}: send {what} again?", lambda: send_again(host, ident, api, show, what, api), api)
        elif isinstance(found, Mapping):
            if found.get("id") is not None:
                show(str(found["id"]))
            host.say(outcome_of(found), good=found.get("outcome") != "unanswered")

    host.say(f"{api} of exchange {ident} is being sent again …")
    host.work(ask, answered)


def named_request(api: str, about: Any, records: Any) -> str:
    """Return a request in words: its API, its topics and partitions, its number of records."""
    return " ".join([api, *([f"about {about}"] if about else ()), *([f"with {records} records"] if records else ())])


def outcome_of(found: Mapping[str, Any]) -> str:
    """Return in a line what became of a request that was sent again."""
    seconds, notes = found.get("seconds"), found.get("notes")
    said = str(found.get("reason") or found.get("outcome")).replace("_", " ")
    if found.get("outcome") == "answered" and isinstance(seconds, (int, float)):
        said = f"answered in {milliseconds(seconds * 1000)}"
    return "; ".join([f"sent again: {said}", *(map(str, notes) if isinstance(notes, list) else ())])
