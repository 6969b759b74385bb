"""Nodes of a filter's tree, and its one spelling, which is printed whichever of several was read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from kproxy.base.errors import FilterError
from kproxy.rules.values.source import nearest

from .fields import BY_NAME, BY_SHORT, Field
from .kinds import ERROR, FLAG


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

PLAIN = re.compile(r"[^\s()\"',!&|~<>=]+")
"""Expression for values that need no quotes."""
WORDS = frozenset(("and", "or", "not", "in"))


def written(node: FilterNode) -> str:
    """Return the filter as text that parses to the same tree."""
    match node:
        case All():
            return ""
        case FieldTest():
            return _claim(node)
        case Not(inner):
            return f"not {_part(inner)}"
        case And(parts):
            return " and ".join(map(_part, parts))
        case Or(parts):
            return " or ".join(map(_part, parts))


def _part(node: FilterNode) -> str:
    return f"({written(node)})" if isinstance(node, And | Or) else written(node)


def _claim(claim: FieldTest) -> str:
    kind = BY_NAME[claim.field].kind
    if not claim.operator:
        return claim.field
    if claim.operator == "in":
        return f"{claim.field} in ({', '.join(quoted(kind.show(value)) for value in claim.value)})"
    text = str(claim.value) if claim.operator in ("~", "!~") else kind.show(claim.value)
    return f"{claim.field} {claim.operator} {quoted(text)}"


def quoted(text: str) -> str:
    """Return text as a value of the language, quoted if necessary. Within quotes, a backslash is literal unless a quote
    or backslash follows."""
    if PLAIN.fullmatch(text) and text.lower() not in WORDS:
        return text
    escaped = re.sub(r'\\(?=[\\"]|\Z)', r"\\\\", text).replace('"', '\\"')
    return f'"{escaped}"'


LONGEST = 4000
"""Characters of a filter. Filters also arrive over the network."""

TokenKind = Literal["word", "text", "short", "operator", "sign", "end"]


@dataclass(frozen=True, slots=True)
class Token:
    """Token at index `at`. text: value of a quoted text, name of a short form without `~`, or the characters."""

    what: TokenKind
    text: str
    at: int


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
    """Return the quoted text at `at` and the index after it. A backslash is literal unless the quote or a backslash
    follows, for regular expressions."""
    found = _QUOTED.match(text, at)
    if found is None:
        raise FilterError(f"the quote {text[at]} is not closed", text, at)
    quote = re.escape(text[at])
    inside = found[1] if found[1] is not None else found[2]
    return Token("text", re.sub(rf"\\([\\{quote}])", r"\1", inside), at), found.end()


DEEPEST = 50
"""Parentheses and negations within each other."""
MOST_CLAIMS = 100
"""Claims of one filter. Compiling the longest expression takes half a millisecond."""
MEANT = {"=": "==", "=~": "~"}


def parse(text: str) -> FilterNode:
    """Return the tree of a filter's text; `All()` for an empty one. Raises FilterError."""
    parser = _Parser(text)
    if parser.at_end():
        return All()
    tree = parser.either(0)
    if not parser.at_end():
        raise parser.wrong(f'"{parser.here.text}" is not expected here')
    return tree


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.place = text, tokens(text), 0
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
            if token.text not in BY_SHORT:
                raise self.wrong(_unknown_short(token.text), token)
            return self.rest(BY_SHORT[token.text], short=True, token=token)
        if token.what == "word" and token.text.lower() in BY_NAME:
            return self.rest(BY_NAME[token.text.lower()], short=False, token=token)
        raise self.wrong(_no_field(token), token)

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
        if self.here.what not in ("word", "text") or (self.here.what == "word" and word in WORDS | BY_NAME.keys()):
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
            return (field.kind.parse_expression if operator in ("~", "!~") else field.kind.parse)(token.text)
        except ValueError as error:
            raise self.wrong(str(error), token) from None


def _unknown_short(name: str) -> str:
    if name.lower() in BY_NAME and BY_NAME[name.lower()].short:
        return f"there is no short form ~{name}, write ~{BY_NAME[name.lower()].short} or {name.lower()}"
    close = nearest(name, BY_SHORT)
    hint = f", did you mean ~{close}?" if close else "; as an operator ~ has a blank behind it"
    return f"there is no short form ~{name}{hint}"


def _no_field(token: Token) -> str:
    if token.what != "word" or token.text.lower() in WORDS:
        return f"expected a field here{f', got {token.text}' if token.text else ''}"
    close = nearest(token.text, BY_NAME)
    hint = f', did you mean "{close}"?' if close else ", `kproxy help filters` lists them"
    return f'unknown field "{token.text}"{hint}'


def _no_operator(field: Field, operator: str) -> str:
    if MEANT.get(operator) in field.kind.operators:
        return f'"{operator}" is no operator, did you mean "{MEANT[operator]}"?'
    if not field.kind.operators:
        return f"{field.name} stands alone, without {operator}"
    return f"{field.name} is {field.kind.wanted}: {', '.join(field.kind.operators)} can stand here, not {operator}"
