"""Bytes that a frame holds if it names something that a pattern selects: a quick test before anything is read.

Strategy. Names stand in frames as they are, in UTF-8, also in the bytes of groups and in texts of errors. So whatever a
pattern holds for has the pattern's letters in it, and a frame without these letters names no such thing. Letters that
are not ASCII do not count, since bytes that are no UTF-8 read as one of them.
"""

from __future__ import annotations

import re

from .match import is_expression

PLAIN = re.compile(r"(?:[a-zA-Z0-9_-]|\\\.)*")
"""Letters at the beginning of a regular expression that stand for themselves."""
REPEATS = ("*", "?", "{")
"""Signs of an expression that may make the letter before them none."""
LEAST = 2
"""Bytes below which the test would hold for most frames."""


def needed_bytes(pattern: str) -> bytes | None:
    """Return the longest run of bytes known to be in every text that `pattern` holds for; None: there is none to speak
    of. Exact text, a glob, or a regular expression that begins with letters and has no alternatives."""
    letters = leading_letters(pattern[1:-1]) if is_expression(pattern) else max(pattern.split("*"), key=len)
    return letters.encode() if len(letters) >= LEAST and letters.isascii() else None


def leading_letters(expression: str) -> str:
    """Return the letters that each match of a regular expression begins with."""
    if "|" in expression:
        return ""
    begin = PLAIN.match(expression)
    head = "" if begin is None else begin[0]
    if expression[len(head) :].startswith(REPEATS):
        head = head[:-2] if head.endswith("\\.") else head[:-1]
    return head.replace("\\.", ".")
