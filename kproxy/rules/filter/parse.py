"""Parses the text of a filter into its tree.

    filter     = or
    or         = and { ("or" | "|" | "||") and }
    and        = not { ["and" | "&" | "&&"] not }          without a word between them it is "and"
    not        = ("not" | "!") not | "(" or ")" | claim
    claim      = field [ operator value | "in" "(" value { "," value } ")" ] | ~short [ [operator] value | "in" … ]

Mistakes are FilterErrors with their place in the text, and with the nearest name where a name is unknown.
"""

from __future__ import annotations

from typing import Any

from kproxy.base.errors import FilterError
from kproxy.rules.values.source import nearest

from .fields import BY_NAME, BY_SHORT, Field
from .kinds import ERROR, FLAG
from .tokens import Token, tokens
from .tree import WORDS, All, And, FieldTest, FilterNode, Not, Or

DEEPEST = 50
"""Parentheses and negations within each other."""
MOST_CLAIMS = 100
"""Claims of one filter: each may have an expression, of which the longest take half a millisecond to compile."""
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
        """Parse what stands behind a field, whose `token` was taken, and return the claim."""
        if self.here.what == "operator" or self.is_word("in"):
            return self.compared(field)
        if not short or field.kind is FLAG:
            return FieldTest(field.name)
        if field.kind is ERROR:
            return self.error(field)
        if self.here.what not in ("word", "text") or self.is_word("and", "or"):
            raise self.wrong(f"{field.kind.wanted} is wanted after ~{token.text}, such as {field.example}")
        return self.valued(field, field.kind.usual)

    def error(self, field: Field) -> FieldTest:
        """Parse what stands behind `~e`: an error or nothing, since words of the language and fields are no errors."""
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
            raise self.wrong('"(" is wanted after in')
        values: list[Any] = []
        while not values or self.is_word(","):
            self.take()
            values.append(self.value(field, "in"))
        if not self.is_word(")"):
            raise self.wrong('"," or ")" is wanted after a value')
        self.take()
        return FieldTest(field.name, "in", tuple(values))

    def valued(self, field: Field, operator: str) -> FieldTest:
        return FieldTest(field.name, operator, self.value(field, operator))

    def value(self, field: Field, operator: str) -> Any:
        token = self.take()
        if token.what not in ("word", "text"):
            raise self.wrong(f"{field.kind.wanted} is wanted here, such as {field.example}", token)
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
        return f"a field is wanted here{f', found {token.text}' if token.text else ''}"
    close = nearest(token.text, BY_NAME)
    hint = f', did you mean "{close}"?' if close else ", `kproxy filter-help` lists them"
    return f'there is no field "{token.text}"{hint}'


def _no_operator(field: Field, operator: str) -> str:
    if MEANT.get(operator) in field.kind.operators:
        return f'"{operator}" is no operator, did you mean "{MEANT[operator]}"?'
    if not field.kind.operators:
        return f"{field.name} stands alone, without {operator}"
    return f"{field.name} is {field.kind.wanted}: {', '.join(field.kind.operators)} can stand here, not {operator}"
