"""Actions on one exchange of the view: send its request again, save it, make a rule that matches it.

A new rule has `mode: dry_run`, so it acts only after the user removes that line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from kproxy.base.errors import InputError, KproxyError, plural
from kproxy.base.named_file import reason
from kproxy.base.terminal import printable
from kproxy.cli.admin_client import Refused, segment
from kproxy.cli.tail import milliseconds
from kproxy.rules.document.read import parse_rules

if TYPE_CHECKING:
    from .app import ViewApp


def make_rule(host: ViewApp, get: Callable[[str], Any]) -> None:
    """Open a rule for similar exchanges in the editor, then add it to the proxy, or save it if the view shows files."""
    edit_rule(host, document_of(get))


def edit_rule(host: ViewApp, text: str) -> None:
    """Open a document in the editor until it is valid or empty."""
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


def save_detail(host: ViewApp, ident: str) -> None:
    """Ask for a file name, and write an exchange to it as JSON, with its bytes."""

    def write(name: str) -> None:
        if name.strip():
            host.work(
                lambda: json.dumps(host.source.detail(ident), indent=2, ensure_ascii=False) + "\n",
                lambda text: save(host, name, text),
            )

    host.prompt("save it as:", f"exchange-{ident}.json", write)


def save(host: ViewApp, name: str, text: str) -> None:
    """Write a new file; an existing file is not changed."""
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


def send_again(host: ViewApp, ident: str, api: str, show: Callable[[str], None], what: str, confirm: str = "") -> None:
    """Send a request again, and `show` the new exchange. `what`: the request as text.

    `confirm`: its API, typed by the user. The proxy requires it for a request that changes something.
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
    """Return a request as text: its API, its topics and partitions, its number of records."""
    return " ".join(
        [api, *([f"about {about}"] if about else ()), *([f"with {plural(records, 'record')}"] if records else ())]
    )


def outcome_of(found: Mapping[str, Any]) -> str:
    """Return the outcome of a request that was sent again, in one line."""
    seconds, notes = found.get("seconds"), found.get("notes")
    said = str(found.get("reason") or found.get("outcome")).replace("_", " ")
    if found.get("outcome") == "answered" and isinstance(seconds, (int, float)):
        said = f"answered in {milliseconds(seconds * 1000)}"
    return "; ".join([f"sent again: {said}", *(map(str, notes) if isinstance(notes, list) else ())])


TTL = "10m"
"""Lifetime of a rule that is created here."""
OTHERS = (
    ("error", "error: NOT_LEADER_OR_FOLLOWER"),
    ("throttle_time", "throttle: 500ms"),
    ("drop", ""),
    ("disconnect", ""),
    ("intercept", "hold_for: 20s"),
)
"""Kinds that can replace the first one, with a line that some of them need."""
SELECTED = ("topic", "partition", "group", "transactional_id", "principal", "listener")
"""Columns with the name of a selector."""


def match_of(get: Callable[[str], Any]) -> dict[str, Any]:
    """Return the selectors for exchanges like one. `get` returns its values by the stream's column names."""
    match: dict[str, Any] = {"api": get("api")}
    if get("client"):
        match["client_id"] = exact(get("client"))
    for name in SELECTED:
        if get(name) is not None:
            match[name] = exact(get(name))
    return match


def exact(value: Any) -> Any:
    r"""Return a value as a selector of exactly this text: a star or a slash would make it a pattern."""
    if not isinstance(value, str) or not ("*" in value or value.startswith("/")):
        return value
    quoted = "".join(char if char.isalnum() else f"\\{char}" for char in value)
    return f"/{quoted}/"


def document_of(get: Callable[[str], Any]) -> str:
    """Return a rule document for exchanges like one, as text to edit."""
    about = get("topic") or get("group") or get("client") or "all"
    rule: dict[str, Any] = {
        "name": f"{get('api')} of {about}", "kind": "delay", "delay": "200ms",
        "match": match_of(get), "mode": "dry_run",
    }  # fmt: skip
    text = dumped([rule])
    other = "\n".join(f"#   kind: {kind}{'; ' + line if line else ''}" for kind, line in OTHERS)
    return (
        f"# Save and leave to add it for {TTL}; leave it empty to give up. It only takes note of what it\n"
        "# would act on: take the line `mode: dry_run` away, and it acts. Instead of kind and delay it may have\n"
        f"{other}\n# or any other: `kproxy rules kinds` lists them.\nrules:\n{text}"
    )


def dumped(rules: list[dict[str, Any]]) -> str:
    """Return rules as YAML; unprintable characters are escaped."""
    text = yaml.safe_dump(rules, sort_keys=False, allow_unicode=True, width=10_000)
    return text if printable(text) == text else yaml.safe_dump(rules, sort_keys=False, width=10_000)


def check(text: str) -> None:
    """Check a document as `kproxy check` does. Raises DocumentError."""
    parse_rules(text, "<edited>")


def is_empty(text: str) -> bool:
    """Return True if a document contains only comments."""
    return not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
