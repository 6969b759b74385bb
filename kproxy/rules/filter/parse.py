"""Nodes of a filter's tree, and its one spelling, which is printed whichever of several was read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from kproxy.base.errors import FilterError
from kproxy.rules.values.source import nearest

from .exchange_fields import EXCHANGES
from .fields import Field, FieldTable, split_path
from .kinds import ERROR, FLAG, PLAIN, WORDS, quoted, unquoted

__all__ = ["All", "And", "FieldTest", "FilterNode", "Not", "Or", "claims", "parse", "quoted", "written"]


@dataclass(frozen=True, slots=True)
class All:
    """Filter without any claim, which every exchange passes."""


@dataclass(frozen=True, slots=True)
class FieldTest:
    """Claim `field operator value`. Without an operator: the field is present, and not 0, empty or false. value: as
    parsed by the field's type; a tuple for `in`, the text of the expression for `~`."""

    field: str
    operator: str = ""
    value: Any = None


@dataclass(frozen=True, slots=True)
class Not:
    """Negation, which holds where `inner` does not."""

    inner: FilterNode


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of two nodes or more."""

    parts: tuple[FilterNode, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of two nodes or more."""

    parts: tuple[FilterNode, ...]


FilterNode = All | FieldTest | Not | And | Or


def claims(node: FilterNode) -> Iterator[FieldTest]:
    """Yield the claims of a filter, from left to right."""
    match node:
        case FieldTest():
            yield node
        case Not(inner):
            yield from claims(inner)
        case And(parts) | Or(parts):
            for part in parts:
                yield from claims(part)


def written(node: FilterNode, table: FieldTable = EXCHANGES) -> str:
    """Return the filter as text that parses to the same tree."""
    match node:
        case All():
            return ""
        case FieldTest():
            return _claim(node, table)
        case Not(inner):
            return f"not {_part(inner, table)}"
        case And(parts):
            return " and ".join(_part(part, table) for part in parts)
        case Or(parts):
            return " or ".join(_part(part, table) for part in parts)


def _part(node: FilterNode, table: FieldTable) -> str:
    return f"({written(node, table)})" if isinstance(node, And | Or) else written(node, table)


def _claim(claim: FieldTest, table: FieldTable) -> str:
    kind = table[claim.field].kind
    if not claim.operator:
        return claim.field
    if claim.operator == "in":
        return f"{claim.field} in ({', '.join(kind.written(value, 'in') for value in claim.value)})"
    return f"{claim.field} {claim.operator} {kind.written(claim.value, claim.operator)}"


LONGEST = 4000
"""Characters of a filter. Filters also arrive over the network."""

TokenKind = Literal["word", "text", "short", "operator", "sign", "end"]


@dataclass(frozen=True, slots=True)
class Token:
    """Token at index `at`. text: value of a quoted text, name of a short form without `~`, or the characters."""

    what: TokenKind
    text: str
    at: int
    end: int


_BLANK = re.compile(r"\s+")
_SHORT = re.compile(r"~([A-Za-z_]+)")
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>|!~(?![A-Za-z_])|~|=~|=")
_SIGN = re.compile(r"&&|\|\||[()!&|,]")
_QUOTED = re.compile(r""""((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'""", re.DOTALL)


def tokens(text: str) -> list[Token]:
    """Return the tokens of a filter; the last one is the end. Raises FilterError."""
    if len(text) > LONGEST:
        raise FilterError(f"{len(text)} characters, at most {LONGEST} are taken", f"{text[:60]}…", 0)
    found: list[Token] = []
    at = 0
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        found.append(_next(text, at))
        at = found[-1].end
    return [*found, Token("end", "", len(text), len(text))]


def _next(text: str, at: int) -> Token:
    if text[at] in "\"'":
        return _text(text, at)
    if found := _SHORT.match(text, at):
        return Token("short", found[1], at, found.end())
    if found := _OPERATOR.match(text, at):
        return Token("operator", found[0], at, found.end())
    if found := _SIGN.match(text, at):
        return Token("sign", found[0], at, found.end())
    word = PLAIN.match(text, at)
    assert word is not None, "whatever is no sign, operator, quote or blank is part of a word"
    return Token("word", word[0], at, word.end())


def _text(text: str, at: int) -> Token:
    """Return the quoted text at `at`. A backslash is literal unless the quote or a backslash
    follows, for regular expressions."""
    found = _QUOTED.match(text, at)
    if found is None:
        raise FilterError(f"the quote {text[at]} is not closed", text, at)
    return Token("text", unquoted(found[0]), at, found.end())


DEEPEST = 50
"""Parentheses and negations within each other."""
MOST_CLAIMS = 100
"""Claims of one filter. Compiling the longest expression takes half a millisecond."""
MEANT = {"=": "==", "=~": "~"}


def parse(text: str, table: FieldTable = EXCHANGES) -> FilterNode:
    """Return the tree of a filter's text; `All()` for an empty one. Raises FilterError."""
    parser = _Parser(text, table)
    if parser.at_end():
        return All()
    tree = parser.either(0)
    if not parser.at_end():
        raise parser.wrong(f'"{parser.here.text}" is not expected here')
    return tree


class _Parser:
    def __init__(self, text: str, table: FieldTable) -> None:
        self.text, self.tokens, self.place = text, tokens(text), 0
        self.table = table
        self.claims = 0

    @property
    def here(self) -> Token:
        return self.tokens[self.place]

    def at_end(self) -> bool:
        return self.here.what == "end"

    def take(self) -> Token:
        """Return the next token and go on to the one behind it."""
        token = self.here
        self.place += token.what != "end"
        return token

    def wrong(self, problem: str, token: Token | None = None) -> FilterError:
        return FilterError(problem, self.text, (token or self.here).at)

    def is_word(self, *words: str) -> bool:
        return self.here.what in ("word", "sign") and self.here.text.lower() in words

    def either(self, depth: int) -> FilterNode:
        parts = [self.both(depth)]
        while self.is_word("or", "|", "||"):
            self.take()
            parts.append(self.both(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def both(self, depth: int) -> FilterNode:
        parts = [self.one(depth)]
        while not (self.at_end() or self.is_word("or", "|", "||", ")", ",")):
            if self.is_word("and", "&", "&&"):
                self.take()
            parts.append(self.one(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def one(self, depth: int) -> FilterNode:
        if depth > DEEPEST:
            raise self.wrong(f"more than {DEEPEST} parentheses and negations within each other")
        if self.is_word("not", "!"):
            self.take()
            return Not(self.one(depth + 1))
        if self.is_word("("):
            opened = self.take()
            inner = self.either(depth + 1)
            if not self.is_word(")"):
                raise self.wrong("this parenthesis is not closed", opened)
            self.take()
            return inner
        return self.claim()

    def claim(self) -> FieldTest:
        token = self.take()
        self.claims += 1
        if self.claims > MOST_CLAIMS:
            raise self.wrong(f"more than {MOST_CLAIMS} claims in one filter", token)
        if token.what == "short":
            if token.text not in self.table.by_short:
                raise self.wrong(_unknown_short(token.text, self.table), token)
            return self.rest(self.table.by_short[token.text], short=True, token=token)
        if token.what == "word" and token.text.lower() in self.table.by_name:
            return self.rest(self.table.by_name[token.text.lower()], short=False, token=token)
        if token.what == "word" and split_path(token.text)[0] in self.table.paths:
            return self.rest(self.path(token), short=False, token=token)
        raise self.wrong(_no_field(token, self.table), token)

    def path(self, token: Token) -> Field:
        """Return the field with a path that begins at `token`; its names may be in quotes."""
        end = token.at + len(token.text)
        while self.here.at == end and self.here.what in ("word", "text"):
            end = self.take().end
        root, rest = split_path(self.text[token.at : end])
        try:
            return self.table.paths[root](rest)
        except ValueError as error:
            raise self.wrong(str(error), token) from None

    def rest(self, field: Field, *, short: bool, token: Token) -> FieldTest:
        """Parse the operator and value after the field of `token`, and return the claim."""
        if self.here.what == "operator" or self.is_word("in"):
            return self.compared(field)
        if not short or field.kind is FLAG:
            return FieldTest(field.name)
        if field.kind is ERROR:
            return self.error(field)
        if self.here.what not in ("word", "text") or self.is_word("and", "or"):
            raise self.wrong(f"expected {field.kind.wanted} after ~{token.text}, such as {field.example}")
        return self.valued(field, field.kind.usual)

    def error(self, field: Field) -> FieldTest:
        """Parse the optional error after `~e`. Words of the language and fields are not errors."""
        word = self.here.text.lower()
        if self.here.what not in ("word", "text") or (
            self.here.what == "word" and word in WORDS | self.table.by_name.keys()
        ):
            return FieldTest(field.name)
        try:
            value = field.kind.parse(self.here.text)
        except ValueError:
            return self.valued(field, "~")
        self.take()
        return FieldTest(field.name, "==", value)

    def compared(self, field: Field) -> FieldTest:
        token = self.take()
        operator = token.text.lower()
        if operator not in field.kind.operators:
            raise self.wrong(_no_operator(field, operator), token)
        if operator != "in":
            return self.valued(field, operator)
        if not self.is_word("("):
            raise self.wrong('expected "(" after in')
        values: list[Any] = []
        while not values or self.is_word(","):
            self.take()
            values.append(self.value(field, "in"))
        if not self.is_word(")"):
            raise self.wrong('expected "," or ")" after a value')
        self.take()
        return FieldTest(field.name, "in", tuple(values))

    def valued(self, field: Field, operator: str) -> FieldTest:
        return FieldTest(field.name, operator, self.value(field, operator))

    def value(self, field: Field, operator: str) -> Any:
        token = self.take()
        if token.what not in ("word", "text"):
            raise self.wrong(f"expected {field.kind.wanted} here, such as {field.example}", token)
        try:
            return field.kind.parse_value(token.text, operator, is_quoted=token.what == "text")
        except ValueError as error:
            raise self.wrong(str(error), token) from None


def _unknown_short(name: str, table: FieldTable) -> str:
    field = table.by_name.get(name.lower())
    if field is not None and field.short:
        return f"there is no short form ~{name}, write ~{field.short} or {field.name}"
    close = nearest(name, table.by_short)
    hint = f", did you mean ~{close}?" if close else "; as an operator ~ has a blank behind it"
    return f"there is no short form ~{name}{hint}"


def _no_field(token: Token, table: FieldTable) -> str:
    if token.what != "word" or token.text.lower() in WORDS:
        return f"expected a field here{f', got {token.text}' if token.text else ''}"
    close = nearest(token.text, table.by_name)
    hint = f', did you mean "{close}"?' if close else ", `kproxy help filters` lists them"
    return f'unknown field "{token.text}"{hint}'


def _no_operator(field: Field, operator: str) -> str:
    if MEANT.get(operator) in field.kind.operators:
        return f'"{operator}" is no operator, did you mean "{MEANT[operator]}"?'
    if not field.kind.operators:
        return f"{field.name} stands alone, without {operator}"
    return f"{field.name} is {field.kind.wanted}: {', '.join(field.kind.operators)} can stand here, not {operator}"
