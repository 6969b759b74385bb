"""Texts that a header of HTTP carries: tokens, for whoever asks for them and for whoever shows them, and other secrets.

A token that no client can show locks everybody out, from the next request on: the last line end of a file is easily
two, and some editors begin each file with a byte order mark.
"""

from __future__ import annotations

BYTE_ORDER_MARK = "\ufeff"
LATIN = 0xFF
"""Last character of Latin-1, which headers are written in."""


def not_for_headers(text: str) -> str | None:
    """Return why a header cannot carry this text, or None. The reason contains no part of the text: it is a secret."""
    if text != text.strip():
        return "it begins or ends with a blank or a line end, which no header carries"
    for at, char in enumerate(text, 1):
        if not char.isprintable() or ord(char) > LATIN:
            return f"its character {at} is one that no header carries"
    return None
