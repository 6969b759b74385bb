"""Rules made of an exchange: a document to edit, which selects what is like it.

It takes note only, at first: whoever wants it to act takes a line away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from kproxy.base.terminal import printable
from kproxy.rules.document.read import parse_rules

TTL = "10m"
"""How long a rule stays that was made here."""
OTHERS = (
    ("error", "error: NOT_LEADER_OR_FOLLOWER"),
    ("throttle_time", "throttle: 500ms"),
    ("drop", ""),
    ("disconnect", ""),
    ("intercept", "hold_for: 20s"),
)
"""Kinds that a rule may have in the place of the first one, with a line that some of them need."""
SELECTED = ("topic", "partition", "group", "transactional_id", "principal", "listener")
"""Columns that are selectors of the same name."""


def match_of(get: Callable[[str], Any]) -> dict[str, Any]:
    """Return what selects exchanges like one, whose values `get` gives by the names of the stream's columns."""
    match: dict[str, Any] = {"api": get("api")}
    if get("client"):
        match["client_id"] = exact(get("client"))
    for name in SELECTED:
        if get(name) is not None:
            match[name] = exact(get(name))
    return match


def exact(value: Any) -> Any:
    r"""Return a value as a selector that means just this text: a star or a slash would make it a pattern."""
    if not isinstance(value, str) or not ("*" in value or value.startswith("/")):
        return value
    quoted = "".join(char if char.isalnum() else f"\\{char}" for char in value)
    return f"/{quoted}/"


def document_of(get: Callable[[str], Any]) -> str:
    """Return a rule document for exchanges like one, as text to edit."""
    about = get("topic") or get("group") or get("client") or "all"
    rule: dict[str, Any] = {
        "name": f"{get('api')} of {about}", "kind": "delay", "delay": "200ms",
        "match": match_of(get), "mode": "observe",
    }  # fmt: skip
    text = dumped([rule])
    other = "\n".join(f"#   kind: {kind}{'; ' + line if line else ''}" for kind, line in OTHERS)
    return (
        f"# Save and leave to add it for {TTL}; leave it empty to give up. It only takes note of what it\n"
        "# would act on: take the line `mode: observe` away, and it acts. Instead of kind and delay it may have\n"
        f"{other}\n# or any other: `kproxy kinds` lists them.\nrules:\n{text}"
    )


def dumped(rules: list[dict[str, Any]]) -> str:
    """Return rules as YAML; letters that cannot be seen are escaped."""
    text = yaml.safe_dump(rules, sort_keys=False, allow_unicode=True, width=10_000)
    return text if printable(text) == text else yaml.safe_dump(rules, sort_keys=False, width=10_000)


def check(text: str) -> None:
    """Check a document as `kproxy check` does. Raises DocumentError."""
    parse_rules(text, "<edited>")


def is_empty(text: str) -> bool:
    """Return True if nothing but comments is left of a document."""
    return not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
