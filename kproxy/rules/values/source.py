"""One YAML or JSON document as text, tree of nodes and plain values, with the errors found in it.

The first hundred errors are reported, others counted. The number of hints (nearest valid words) is limited per
document, since one hint costs as much as a hundred other checks.

An error is noted at a *path* of keys and list indexes (`("rules", 0, "topics", "orders")`). The source finds line and
column. A path beyond the file has the position of the file's end.

Only decimal numbers, true, false and null are converted. Dates, base-60 (`1:30`) and octal numbers of YAML 1.1 stay
text. `yes`, `no`, `on` and `off` become booleans.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as Dict
from collections.abc import Sequence as Sequence_
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kproxy.base.errors import DocumentError, plural
from kproxy.base.named_file import PathGuard, read_named, reason
from kproxy.rules.values.yaml_file import (
    LONGEST_TEXT,
    MAX_DEPTH,
    MAX_NODES,
    TOO_LONG,
    Mapping,
    Scalar,
    Sequence,
    YamlMistake,
    YamlNode,
    read_tree,
)

LONGEST_WORD = 100
"""Characters of a word that gets a hint. No valid word is as long."""


class Hints:
    """Budget of hints that are left for one document."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self) -> bool:
        """Take one hint, and return True if there was one."""
        self.left -= 1
        return self.left >= 0


_current: ContextVar[Hints | None] = ContextVar("hints", default=None)
"""Hints of the document that is being checked; None: no limit."""


@contextmanager
def counted(hints: Hints) -> Iterator[None]:
    """Within this context, charge hints to these, per task or thread."""
    before = _current.set(hints)
    try:
        yield
    finally:
        _current.reset(before)


def nearest(word: object, words: Iterable[str]) -> str | None:
    """Return the valid word that is most like this one, upper and lower case alike; None without one or a hint."""
    text, hints = str(word), _current.get()
    if len(text) > LONGEST_WORD or (hints is not None and not hints.spend()):
        return None
    by_folded = {valid.lower(): valid for valid in words}
    close = get_close_matches(text.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


Where = tuple[Any, ...]

MOST_MISTAKES = 100
"""Reported errors of one document, and of one rejected change. Others are counted."""
SHORTEST_VALUE = 4
"""Characters of a variable's value that is looked for in messages about other places. Shorter ones occur by chance."""
LONGEST_MESSAGE = 600
"""Characters; the longest message of our own, with all allowed keys of `limits`, has some 400."""


class Source:
    """Tree of one file, and the errors in it. `root` is None if the file has no value or is not YAML. `has_text`: the
    file has at least one byte, though all of it may be comments. `hidden`: errors are counted and not shown, since
    their messages quote the file."""

    def __init__(self, file: str, data: str | bytes, *, hidden: bool = False) -> None:
        self.file, self.hidden = file, hidden
        self._variables: dict[tuple[int, int], str] = {}  # places with a replaced variable
        self._values: dict[str, str] = {}  # names of variables by value
        self.has_text = len(data) > 0
        self.root: YamlNode | None = None
        self._mistakes: dict[tuple[int, int, str], None] = {}
        self._untold: set[int] = set()  # hashes of mistakes beyond those
        self._settled: set[tuple[int, int]] = set()
        self.hints = Hints(MOST_MISTAKES)
        try:
            self.root = read_tree(data)
            self.is_yaml = True
        except YamlMistake as mistake:
            self.is_yaml = False
            self.note_at(mistake.line, mistake.column, mistake.message)

    @classmethod
    def open(cls, path: Path, guard: PathGuard | None = None) -> Source:
        """Read a file. If it cannot be read, or `guard` refuses it, the source has that error. With a guard the source
        is hidden."""
        try:
            return cls(str(path), read_named(path, guard=guard), hidden=guard is not None)
        except OSError as error:
            source = cls(str(path), "")
            source.is_yaml = False
            source.note_at(1, 1, f"the file cannot be read: {reason(error)}")
            return source

    def note(self, where: Where, message: str, *, key: bool = False) -> None:
        """Note an error at a path. key: at its key, not at its value."""
        self.note_at(*self.place(where, key=key), message)

    def note_at(
        self, line: int, column: int, message: str, *, settles: bool = False, quotes_variables: bool = False
    ) -> None:
        """Note an error. The same message at the same place counts once. An error that `settles` its place (it has no
        value at all) suppresses all later ones at that place. Values of variables are removed from the message, unless
        it `quotes_variables` in settings that are valid."""
        if self._variables and not settles and not quotes_variables:
            message = self._without_values(line, column, message)
        mistake = line, column, _one_line(message)
        if mistake not in self._mistakes and (line, column) not in self._settled:
            if len(self._mistakes) < MOST_MISTAKES:
                self._mistakes[mistake] = None
            else:
                self._untold.add(hash(mistake))
        if settles:
            self._settled.add((line, column))

    def replaced(self, line: int, column: int, name: str, value: str) -> None:
        """Record that a variable was replaced by its value in the scalar at this place."""
        self._variables[line, column] = name
        if len(value) >= SHORTEST_VALUE:
            self._values[value] = name

    def _without_values(self, line: int, column: int, message: str) -> str:
        """Return a message without values of variables. A message about such a value may quote any part of it."""
        if name := self._variables.get((line, column)):
            return f"the value of ${{{name}}} cannot be used here"
        for value, name in self._values.items():
            message = message.replace(value, f"${{{name}}}")
        return message

    def forget(self) -> None:
        """Clear all errors: they concerned other documents of a rejected change."""
        self._mistakes.clear()
        self._untold.clear()
        self._settled.clear()
        self.hints = Hints(MOST_MISTAKES)

    def place(self, where: Where, *, key: bool = False) -> tuple[int, int]:
        """Return line and column, from 1, of the value (or key) at a path."""
        node, name = self._find(where)
        chosen = name if key and name is not None else node
        return (chosen.line, chosen.column) if chosen is not None else (1, 1)

    def position(self, where: Where, *, key: bool = False) -> str:
        """Return a path in the document as `file:line:column`."""
        line, column = self.place(where, key=key)
        return f"{self.file}:{line}:{column}"

    def scalar(self, where: Where) -> Scalar | None:
        """Return the scalar at this path as written, or None."""
        node, _ = self._find(where)
        return node if isinstance(node, Scalar) else None

    def lines(self) -> list[str]:
        """Return the reported errors as `file:line:column: message`, in file order."""
        if self.hidden and self._mistakes:
            count = len(self._mistakes) + len(self._untold)
            errors = plural(count, "error")
            where = "`kproxy check` on the machine of kproxy shows them, except rules that run code"
            return [f"{self.file}:1:1: {errors}; {where}"]
        return [f"{self.file}:{line}:{column}: {text}" for line, column, text in sorted(self._mistakes)]

    @property
    def untold(self) -> int:
        """Return the number of errors that `lines` does not contain."""
        return 0 if self.hidden else len(self._untold)

    def _find(self, where: Where) -> tuple[YamlNode | None, YamlNode | None]:
        """Return node and key at a path; parts that name nothing (a union's tag, a missing key) are passed over."""
        node, name = self.root, None
        for part in where:
            below = _step(node, part)
            if below is not None:
                node, name = below
        return node, name


def _one_line(message: str) -> str:
    """Return a message without line ends, a terminal's control sequences and more than `LONGEST_MESSAGE` characters."""
    shown = message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)


def _step(node: YamlNode | None, part: Any) -> tuple[YamlNode, YamlNode | None] | None:
    if isinstance(node, Sequence) and isinstance(part, int) and 0 <= part < len(node.items):
        return node.items[part], None
    if isinstance(node, Mapping):
        return node.find(str(part))
    return None


def raise_mistakes(sources: Iterable[Source]) -> None:
    """Raise one DocumentError with the errors of all sources, if any. The first hundred are reported."""
    sources = list(sources)
    lines = [line for source in sources for line in source.lines()]
    if lines:
        raise DocumentError(told(lines, sum(source.untold for source in sources)))


def told(lines: Sequence_[str], untold: int = 0) -> list[str]:
    """Return the first hundred lines, and one that counts the rest and the `untold` ones, where there are any."""
    more = untold + max(len(lines) - MOST_MISTAKES, 0)
    return [*lines[:MOST_MISTAKES], *([f"and {plural(more, 'more mistake')}"] if more else [])]


WORDS_1_1 = {"yes": True, "on": True, "no": False, "off": False}
"""Booleans in YAML 1.1 only; in every case (`No`, `NO`)."""

_CONSTANTS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?[0-9][0-9_]*\.[0-9]*([eE][-+]?[0-9]+)?")
_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def to_value(
    source: Source, *, variables: bool = False, environment: Dict[str, str] | None = None,
    may_replace: Callable[[Where], bool] = lambda where: True,
) -> Any:  # fmt: skip
    """Return the whole document as dicts, lists and scalars; note duplicate and odd keys, and missing variables.

    `variables`: replace `${NAME}` in values from the environment (config documents only); `$${` becomes `${`.
    `may_replace`: the places where variables are allowed; elsewhere they are an error.
    """
    if source.root is None:
        return None
    reader = _Reader(source, (os.environ if environment is None else environment) if variables else None, may_replace)
    return reader.value(source.root, ())


class _Reader:
    def __init__(
        self, source: Source, environment: Dict[str, str] | None, may_replace: Callable[[Where], bool]
    ) -> None:
        self.source, self.environment, self.may_replace = source, environment, may_replace

    def value(self, node: YamlNode, where: Where) -> Any:
        if isinstance(node, Scalar):
            text = node.text if self.environment is None else self._substitute(node, where, self.environment)
            return _plain(text) if node.plain else text
        if isinstance(node, Sequence):
            return [self.value(item, (*where, index)) for index, item in enumerate(node.items)]
        return self._mapping(node, where)

    def _mapping(self, node: Mapping, where: Where) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        first: dict[Any, YamlNode] = {}
        for key, value in node.pairs:
            name = self._key(key)
            if name in first:
                message = f'the key "{name}" is there twice, first in line {first[name].line}'
                self.source.note_at(key.line, key.column, message)
                self.value(value, (*where, name))
                continue
            first[name] = key
            values[name] = self.value(value, (*where, name))
        return values

    def _key(self, key: YamlNode) -> Any:
        if not isinstance(key, Scalar):
            self.source.note_at(key.line, key.column, "a key must be text; text with { } [ ] in it must be quoted")
            return f"line {key.line} column {key.column}"
        value = _plain(key.text) if key.plain else key.text
        if isinstance(value, bool) or value is None:
            self.source.note_at(key.line, key.column, _bad_key(key.text, value))
            return key.text
        return value if isinstance(value, int) and str(value) == key.text else key.text

    def _substitute(self, node: Scalar, where: Where, environment: Dict[str, str]) -> str:
        def replace(found: re.Match[str]) -> str:
            if found[0] == "$${":
                return "${"
            name, closed = found[1], found[0].endswith("}")
            if not self.may_replace(where):
                message = f"{found[0]} is allowed for secrets only, in a document over the admin API; write the value"
            elif name in environment and closed:
                self.source.replaced(node.line, node.column, name, environment[name])
                return environment[name]
            elif _VARIABLE_NAME.fullmatch(name) and closed:
                message = f"the environment variable {name} is not set"
            else:
                message = f'"{found[0]}" is no variable, write ${{NAME}}, or $${{ for ${{'
            self.source.note_at(node.line, node.column, message, settles=True)
            return ""

        return _VARIABLE.sub(replace, node.text)


def _bad_key(text: str, value: object) -> str:
    if value is None:
        return f'a key is missing here; if "{text}" is meant, write it in quotes'
    return f'{text} without quotes is the boolean {str(value).lower()} in YAML, write the key in quotes: "{text}"'


def _plain(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text.lower() in WORDS_1_1:
        return WORDS_1_1[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", "")) if len(text) <= MAX_DIGITS else text
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text


MAX_DIGITS = 40
"""Longer numbers stay text: Python refuses to convert thousands of digits, and no setting needs them."""


_TOKEN = re.compile(
    r"""[ \t\r]*+(?:
        (?P<line>\n) | (?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+") | (?P<sign>[\[\]{}:,]) | (?P<word>[^\s\[\]{}:,"]++)
    )""",
    re.VERBOSE,
)
_HALF = re.compile("[\ud800-\udfff]")


def json_source(file: str, data: bytes) -> Source:
    """Return the source of a JSON document. Invalid JSON is noted as an error, and `is_yaml` is False."""
    source = Source(file, "")
    source.has_text = len(data) > 0
    try:
        text = data.decode()
        _measure(text)
        json.loads(text, parse_constant=_refuse)
        source.root = read_json(text)
    except UnicodeDecodeError as error:
        _broken(source, 1, 1, f"the document is not UTF-8: byte 0x{data[error.start]:02x}")
    except json.JSONDecodeError as error:
        _broken(source, error.lineno, error.colno, f"not JSON: {error.msg[0].lower()}{error.msg[1:]}")
    except RecursionError:
        _broken(source, 1, 1, f"nested too deep, the limit is {MAX_DEPTH} levels")
    except YamlMistake as mistake:
        _broken(source, mistake.line, mistake.column, mistake.message)
    except ValueError as error:  # NaN and the infinities; numbers of thousands of digits
        _broken(source, 1, 1, f"not JSON: {error}")
    return source


def _broken(source: Source, line: int, column: int, message: str) -> None:
    source.is_yaml = False
    source.note_at(line, column, message)


def _refuse(constant: str) -> None:
    raise ValueError(f"expected a number of JSON, got {constant}")


def _measure(text: str) -> None:
    """Raise YamlMistake for a document that is too large, since `json.loads` does not yield. Syntax errors are left to
    it."""
    depth = count = position = 0
    while found := _TOKEN.match(text, position):
        position, kind, sign = found.end(), found.lastgroup, found["sign"]
        count += kind in ("text", "word") or sign in ("[", "{")
        depth += (sign in ("[", "{")) - (sign in ("]", "}")) if sign else 0
        if count > MAX_NODES or depth > MAX_DEPTH or position - found.start(kind or 0) > LONGEST_TEXT:
            line = text.count("\n", 0, position) + 1
            column = found.start(kind or 0) - text.rfind("\n", 0, position)
            if count > MAX_NODES:
                raise YamlMistake(line, column, f"more than {MAX_NODES} keys and values")
            if depth > MAX_DEPTH:
                raise YamlMistake(line, column, f"nested {depth} levels deep, the limit is {MAX_DEPTH}")
            raise YamlMistake(line, column, TOO_LONG)


def read_json(text: str) -> YamlNode:
    """Return the root node of text that is known to be JSON. Raises YamlMistake when there is too much of it."""
    root = Sequence(1, 1)
    stack: list[Sequence | Mapping] = [root]
    line, start, count, position = 1, 0, 0, 0
    while found := _TOKEN.match(text, position):
        position = found.end()
        kind, word = found.lastgroup, found[found.lastgroup or 0]
        column = found.start(kind or 0) - start + 1
        if kind == "line":
            line, start = line + 1, position
        elif word in "]}":
            stack.pop()
        elif word not in ",:":
            count += 1
            if count > MAX_NODES:
                raise YamlMistake(line, column, f"more than {MAX_NODES} keys and values")
            node = _node(kind, word, line, column)
            stack[-1].add(node)
            if not isinstance(node, Scalar):
                stack.append(node)
                if len(stack) > MAX_DEPTH + 1:
                    raise YamlMistake(line, column, f"nested {len(stack) - 1} levels deep, the limit is {MAX_DEPTH}")
    return root.items[0]


def _node(kind: str | None, word: str, line: int, column: int) -> YamlNode:
    if kind == "sign":
        return Mapping(line, column) if word == "{" else Sequence(line, column)
    if kind == "text":
        text: str = json.loads(word)
        if "\\u" in word and (half := _HALF.search(text)):
            raise YamlMistake(line, column, f"\\u{ord(half[0]):04x} is half a character, without the other half")
        return Scalar(line, column, text, plain=False)
    if "e" in word.lower() and word[-1].isdigit():  # in YAML a number with an exponent has a point
        word = re.sub(r"^(-?\d+)e", r"\1.e", repr(json.loads(word)))
    return Scalar(line, column, word, plain=True)
