"""The text of a filter cut into tokens, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kproxy.base.errors import FilterError

from .tree import PLAIN

LONGEST = 4000
"""Characters of a filter at most. Filters come over the network, too, and nobody types more."""

TokenKind = Literal["word", "text", "short", "operator", "sign", "end"]


@dataclass(frozen=True, slots=True)
class Token:
    """Token of a filter's text, at index `at` in it.

    `text`: the value of a quoted text, the name of a short form without `~`, else the characters themselves.
    """

    what: TokenKind
    text: str
    at: int


_BLANK = re.compile(r"\s+")
_SHORT = re.compile(r"~([A-Za-z_]+)")
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>|!~(?![A-Za-z_])|~|=~|=")
_SIGN = re.compile(r"&&|\|\||[()!&|,]")
_QUOTED = re.compile(r""""((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'""", re.DOTALL)


def tokens(text: str) -> list[Token]:
    """Return the tokens of a filter's text, of which the last one is the end. Raises FilterError."""
    if len(text) > LONGEST:
        raise FilterError(f"{len(text)} characters, at most {LONGEST} are taken", f"{text[:60]}…", 0)
    found: list[Token] = []
    at = 0
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        token, at = _next(text, at)
        found.append(token)
    return [*found, Token("end", "", len(text))]


def _next(text: str, at: int) -> tuple[Token, int]:
    if text[at] in "\"'":
        return _text(text, at)
    if found := _SHORT.match(text, at):
        return Token("short", found[1], at), found.end()
    if found := _OPERATOR.match(text, at):
        return Token("operator", found[0], at), found.end()
    if found := _SIGN.match(text, at):
        return Token("sign", found[0], at), found.end()
    word = PLAIN.match(text, at)
    assert word is not None, "whatever is no sign, operator, quote or blank is part of a word"
    return Token("word", word[0], at), word.end()


def _text(text: str, at: int) -> tuple[Token, int]:
    """Return the quoted text at `at` and the index behind it.

    A backslash stands for itself unless the quote or another backslash follows: regular expressions are full of them.
    """
    found = _QUOTED.match(text, at)
    if found is None:
        raise FilterError(f"the quote {text[at]} is not closed", text, at)
    quote = re.escape(text[at])
    inside = found[1] if found[1] is not None else found[2]
    return Token("text", re.sub(rf"\\([\\{quote}])", r"\1", inside), at), found.end()
