"""Numbers with what they count, in the singular and in the plural."""

from __future__ import annotations


def number_of(count: int, what: str) -> str:
    """Return a number with what it counts, in the plural unless it is one."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {plural(what)}"


def plural(what: str) -> str:
    """Return the plural of a noun that may have an adjective in front."""
    return f"{what}es" if what.endswith("ch") else f"{what}s"


def singular(what: str) -> str:
    """Return the singular of the last noun, for a count of one."""
    return what.removesuffix("s")
