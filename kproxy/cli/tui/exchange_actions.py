"""Actions on one exchange, from the list and from its details: make a rule of it, save it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kproxy.base.errors import InputError, KproxyError
from kproxy.base.named_file import reason

from .host import ViewHost
from .make_rule import TTL, check, document_of, is_empty


def make_rule(host: ViewHost, get: Callable[[str], Any]) -> None:
    """Have a document edited that is about exchanges like one, and add it; while files are shown, save it."""
    edit_rule(host, document_of(get))


def edit_rule(host: ViewHost, text: str) -> None:
    """Have a document edited until it is right, or empty."""
    after = host.edited(text, ".yaml")
    if after is None or is_empty(after):
        host.say("no rule was made")
        return
    try:
        check(after)
    except KproxyError as error:
        host.confirm(f"{error}: edit on?", lambda: edit_rule(host, after))
        return
    admin = host.admin
    if admin is None:
        host.prompt("save the rule as:", "made.yaml", lambda name: save(host, name, after))
        return

    def asked(found: Any) -> None:
        matches = found.get("matches") if isinstance(found, Mapping) else None
        told = ""
        if isinstance(matches, Mapping):
            told = f": of {matches.get('of')} kept exchanges it matches {matches.get('matched')}"
        host.confirm(f"add it for {TTL}{told}?", add)

    def add() -> None:
        query = {"ttl": TTL, "replace": "true"}
        host.work(
            lambda: admin("POST", "/api/rules", after.encode(), kind="application/yaml", query=query),
            lambda answer: host.say("the rule is in force; 4 shows what it does"),
        )

    host.work(lambda: admin("POST", "/api/check", after.encode(), kind="application/yaml"), asked)


def save_detail(host: ViewHost, ident: str) -> None:
    """Ask for a file, and write an exchange into it as JSON, with its bytes."""

    def write(name: str) -> None:
        if name.strip():
            host.work(
                lambda: json.dumps(host.source.detail(ident), indent=2, ensure_ascii=False) + "\n",
                lambda text: save(host, name, text),
            )

    host.prompt("save it as:", f"exchange-{ident}.json", write)


def save(host: ViewHost, name: str, text: str) -> None:
    """Write a new file; one that is there stays as it is."""
    path = Path(name.strip()).expanduser()

    def write() -> None:
        try:
            with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise InputError(f"{path} cannot be written: {why}") from None

    if name.strip():
        host.work(write, lambda nothing: host.say(f"saved as {path}"))
