"""Types of field values: parsing, checks and comparison.

A type parses a value once into its canonical form (`produce` → `Produce`, `0.2s` → 200.0 ms), so two spellings give one
tree. `show` prints it so that it can be parsed again. `compare` builds the test. Errors are ValueErrors; the parser
adds the position.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any

from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table import schema
from kproxy.rules.values.address import address_test, compiled
from kproxy.rules.values.quantities import parse_duration, parse_size
from kproxy.rules.values.source import nearest

EQUAL = ("==", "!=", "in")
EXPRESSION = ("~", "!~")
ORDERS = {"<": lt, "<=": le, ">": gt, ">=": ge}
ORDER = tuple(ORDERS)
Compare = Callable[[Any], bool]
PLAIN = re.compile(r"[^\s()\"',!&|~<>=]+")
"""Expression for values that need no quotes."""
WORDS = frozenset(("and", "or", "not", "in"))


def quoted(text: str) -> str:
    """Return text as a value of the language, quoted if necessary. Within quotes, a backslash is literal unless a quote
    or backslash follows."""
    if PLAIN.fullmatch(text) and text.lower() not in WORDS:
        return text
    return in_quotes(text)


def in_quotes(text: str) -> str:
    escaped = re.sub(r'\\(?=[\\"]|\Z)', r"\\\\", text).replace('"', '\\"')
    return f'"{escaped}"'


def unquoted(text: str) -> str:
    """Return the content of a text in quotes; a text without quotes as it is."""
    if text[:1] not in ("'", '"'):
        return text
    return re.sub(rf"\\([\\{re.escape(text[0])}])", r"\1", text[1:-1])


class Kind:
    """Text values, and base of all other types. operators: allowed after the field. usual: operator of the short form.
    wanted: name of the value in messages."""

    operators: tuple[str, ...] = (*EQUAL, *EXPRESSION)
    usual = "~"
    wanted = "text"
    ignores_case = False

    def parse(self, text: str) -> Any:
        """Return the canonical value of a text, which exchanges are compared with. Raises ValueError."""
        return text

    def show(self, value: Any) -> str:
        """Return a canonical value as text, without quotes."""
        return str(value)

    def parse_expression(self, text: str) -> str:
        """Return the text of a regular expression if it is a right one. Raises ValueError."""
        compiled(text)
        return text

    def parse_value(self, text: str, operator: str, *, is_quoted: bool) -> Any:
        """Return the value after an operator. `is_quoted`: the text was in quotes. Raises ValueError."""
        return self.parse_expression(text) if operator in EXPRESSION else self.parse(text)

    def written(self, value: Any, operator: str) -> str:
        """Return a value as text for this operator, which `parse_value` reads again."""
        return quoted(str(value) if operator in EXPRESSION else self.show(value))

    def compare(self, operator: str, value: Any) -> Compare:
        """Return the test of one value of an exchange, for an operator without negation."""
        if operator == "~":
            return expression_test(value, self.ignores_case)
        if operator == "in":
            return self.among(value)
        return self.equals(value)

    def among(self, values: Sequence[Any]) -> Compare:
        """Return the test whether a value of an exchange is equal to one of these, however many they are."""
        return frozenset(values).__contains__

    def equals(self, value: Any) -> Compare:
        """Return the test whether a value of an exchange is equal to `value`."""
        same: Compare = value.__eq__
        return same


def expression_test(pattern: str, ignores_case: bool = False) -> Compare:
    """Return the test whether a regular expression is found anywhere in a value as text."""
    expression = compiled(f"(?i){pattern}" if ignores_case else pattern)

    def test(found: Any) -> bool:
        text = str(found)
        try:
            return expression.search(text) is not None
        except UnicodeEncodeError:  # replacement characters: each byte that is not UTF-8 counts as one "?"
            return expression.search(text.encode(errors="replace").decode()) is not None

    return test


def folded(name: str) -> str:
    """Return a name in lower case, without any punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


class ApiKind(Kind):
    """Kind of APIs: by name in any case and punctuation, by a former name, or by key."""

    usual = "=="
    wanted = "an API"
    ignores_case = True

    def parse(self, text: str) -> str:
        if text.isdecimal() and int(text) in schema.paths():
            return schema.load(int(text)).name
        by_folded = {folded(name): key for name, key in schema.names().items()}
        if folded(text) in by_folded:
            return schema.load(by_folded[folded(text)]).name
        close = nearest(text, schema.names())
        hint = f', did you mean "{close}"?' if close else ', "kproxy protocol" lists them'
        raise ValueError(f'unknown API "{text}"{hint}')


class ErrorKind(Kind):
    """Kind of errors: by name or number, or by a regular expression for names."""

    usual = "~"
    wanted = "an error"
    ignores_case = True

    def parse(self, text: str) -> str:
        if re.fullmatch("-?[0-9]+", text) and int(text) in error_codes.numbers():
            return error_codes.error_name(int(text))
        if text.upper() in error_codes.names():
            return text.upper()
        raise ValueError(self.unknown(text))

    def parse_expression(self, text: str) -> str:
        test = expression_test(text, True)
        if not any(test(name) for name in error_codes.names()):
            raise ValueError(self.unknown(text))
        return text

    def unknown(self, text: str) -> str:
        close = nearest(text, error_codes.names())
        return f'unknown error "{text}"' + (f', did you mean "{close}"?' if close else "")


class NumberKind(Kind):
    """Kind of whole numbers, which have an order."""

    operators: tuple[str, ...] = (*EQUAL, *ORDER)
    usual = "=="
    wanted = "a whole number"

    def parse(self, text: str) -> Any:
        if not re.fullmatch("-?[0-9]{1,19}", text):
            raise ValueError(f'expected a whole number, got "{text}"')
        return int(text)

    def compare(self, operator: str, value: Any) -> Compare:
        if operator in ORDER:
            order = ORDERS[operator]
            return lambda found: bool(order(found, value))
        return super().compare(operator, value)


class AcksKind(NumberKind):
    """Kind of Produce's acks: 0, 1, or -1, which is also written `all`."""

    wanted = "0, 1 or all"

    def parse(self, text: str) -> int:
        if text.lower() == "all":
            return -1
        if text not in ("-1", "0", "1"):
            raise ValueError(f'expected acks 0, 1 or all, got "{text}"')
        return int(text)

    def show(self, value: Any) -> str:
        return "all" if value == -1 else str(value)


class DurationKind(NumberKind):
    """Kind of durations such as 200ms; values are milliseconds, rounded to microseconds."""

    wanted = "a duration"

    def parse(self, text: str) -> float:
        return round(float(parse_duration(text)) * 1000, 3)

    def show(self, value: Any) -> str:
        return f"{value:.3f}".rstrip("0").rstrip(".") + "ms"


class SizeKind(NumberKind):
    """Kind of sizes such as 1MB or 64KiB; values are bytes, and so is a plain number."""

    wanted = "a size"

    def parse(self, text: str) -> int:
        return int(text) if text.isdecimal() and len(text) < 20 else int(parse_size(text))

    def show(self, value: Any) -> str:
        return f"{value}B"


class AddressKind(Kind):
    """Kind of IP addresses, compared with an address or with a network such as 10.0.0.0/8."""

    operators = EQUAL
    usual = "=="
    wanted = "an address or a network"

    def parse(self, text: str) -> str:
        try:
            return str(ipaddress.ip_network(text)) if "/" in text else str(ipaddress.ip_address(text))
        except ValueError as error:
            raise ValueError(f"expected an address or a network such as 10.0.0.0/8: {error}") from None

    def among(self, values: Sequence[Any]) -> Compare:
        return address_test(list(values))

    def equals(self, value: Any) -> Compare:
        return address_test([value])


class TimeKind(NumberKind):
    """Kind of times in UTC as events have them, or their beginning: 2026-11-21T10:11."""

    operators = ORDER
    usual = ">="
    wanted = "a time in UTC"

    def parse(self, text: str) -> str:
        """Return the time as text, which can be compared: all events write times alike, and earlier sorts first."""
        try:
            made = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f'expected a time such as 2026-11-21T10:11:12, got "{text}"') from None
        if not re.fullmatch(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?Z?", text):
            raise ValueError(f'expected a time in UTC such as {made:%Y-%m-%dT%H:%M:%S}, got "{text}"')
        return text.removesuffix("Z")


class ChoiceKind(Kind):
    """Values from a few words, in any case."""

    operators = EQUAL
    usual = "=="

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        self.wanted = f"one of {', '.join(self.words)}"

    def parse(self, text: str) -> str:
        if text.lower() not in self.words:
            close = nearest(text, self.words)
            hint = f', did you mean "{close}"?' if close else ""
            raise ValueError(f'expected {self.wanted}, got "{text}"{hint}')
        return text.lower()


JSON_NUMBER = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,7})?")
MOST_EXPONENT = 100_000
JSON_WORDS = {"true": True, "false": False, "null": None}


class JsonKind(Kind):
    """Values in JSON: text, numbers, true, false and null. Numbers are compared exactly, and quoted values are text."""

    operators = (*EQUAL, *EXPRESSION, *ORDER)
    usual = "=="
    wanted = "text, a number, true, false or null"

    def parse_value(self, text: str, operator: str, *, is_quoted: bool) -> Any:
        if operator in EXPRESSION:
            return self.parse_expression(text)
        value: Any = text
        if not is_quoted and text in JSON_WORDS:
            value = JSON_WORDS[text]
        elif not is_quoted and JSON_NUMBER.fullmatch(text):
            value = Decimal(text)
            if abs(value.adjusted()) > MOST_EXPONENT:
                raise ValueError(f"expected an exponent of at most {MOST_EXPONENT}, got {text}")
        if operator in ORDER and not isinstance(value, str | Decimal):
            raise ValueError(f"expected text or a number after {operator}, got {text}")
        return value

    def written(self, value: Any, operator: str) -> str:
        if operator in EXPRESSION:
            return quoted(value)
        if isinstance(value, str):
            return in_quotes(value) if value in JSON_WORDS or JSON_NUMBER.fullmatch(value) else quoted(value)
        return str(value) if isinstance(value, Decimal) else {True: "true", False: "false", None: "null"}[value]

    def compare(self, operator: str, value: Any) -> Compare:
        if operator == "~":
            test = expression_test(value)
            return lambda found: json_type(found) in (str, Decimal) and test(found)
        if operator not in ORDER:
            return super().compare(operator, value)
        order, kind = ORDERS[operator], json_type(value)
        return lambda found: json_type(found) is kind and order(found, value)

    def among(self, values: Sequence[Any]) -> Compare:
        wanted = frozenset((json_type(value), value) for value in values)
        return lambda found: (kind := json_type(found)) is not None and (kind, found) in wanted

    def equals(self, value: Any) -> Compare:
        kind = json_type(value)
        return lambda found: json_type(found) is kind and found == value


def json_type(value: Any) -> type | None:
    """Return the type that a value is compared as: Decimal for each number. None for arrays and objects."""
    kind = type(value)
    return Decimal if kind is int else kind if kind in (str, Decimal, bool, type(None)) else None


class FlagKind(Kind):
    """True or false: such a field has no operator and no value."""

    operators = ()
    wanted = ""


TEXT, API, ERROR, NUMBER, ACKS = Kind(), ApiKind(), ErrorKind(), NumberKind(), AcksKind()
DURATION, SIZE, ADDRESS, TIME, FLAG = DurationKind(), SizeKind(), AddressKind(), TimeKind(), FlagKind()
JSON = JsonKind()
