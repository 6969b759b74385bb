"""Trees of nodes that know their line and column, from YAML text.

Strategy: libyaml gives a flat stream of events; the tree is built here, with a stack of our own, so that nesting is
bounded (the C composer recurses and kills the process at some ten thousand brackets). An alias shares the node that its
anchor marked; `weight` counts what it would be if written out, so that aliases of aliases stay bounded too. Nothing is
interpreted yet: `source.py` does that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import yaml

MAX_DEPTH = 50
"""Nesting allowed; the deepest document in use has seven levels."""
MAX_NODES = 200_000
"""Keys and values in one document, aliases written out: some 20 MB of memory."""
LONGEST_TEXT = 1 << 20
"""Characters of one key or value: a record's largest value by default."""
TOO_LONG = f"a key or value of more than {LONGEST_TEXT} characters"
MOST_TAG_LINES = 16
"""Maximum lines that start with %TAG: libyaml compares each with all earlier ones in one call without yielding."""
TAG_LINE = re.compile(r"(?:^|[\r\n\x85\u2028\u2029])%TAG")
PIECE = 1 << 14
"""Characters that libyaml is given at a time."""


class _Pieces:
    """Text for libyaml, which asks for it piece by piece: in between others may run, also amid one long value."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def read(self, size: int = PIECE) -> str:
        piece = self.text[self.at : self.at + min(size, PIECE)]
        self.at += len(piece)
        return piece


class YamlMistake(Exception):
    """Text that is not YAML, or YAML that is not used here; line and column count from 1."""

    def __init__(self, line: int, column: int, message: str) -> None:
        self.line, self.column, self.message = line, column, message
        super().__init__(message)


@dataclass(slots=True)
class Scalar:
    """Node of text; plain means without quotes and without a tag such as `!!str`."""

    line: int
    column: int
    text: str
    plain: bool
    weight: int = 1


@dataclass(slots=True)
class Sequence:
    """Node that is a list of nodes."""

    line: int
    column: int
    items: list[YamlNode] = field(default_factory=list)
    weight: int = 1

    def add(self, node: YamlNode) -> None:
        self.items.append(node)


@dataclass(slots=True)
class Mapping:
    """Node of pairs of nodes in file order, duplicates included."""

    line: int
    column: int
    pairs: list[tuple[YamlNode, YamlNode]] = field(default_factory=list)
    key: YamlNode | None = None
    weight: int = 1
    by_text: dict[str, tuple[YamlNode, YamlNode]] = field(default_factory=dict, compare=False, repr=False)
    indexed: int = 0

    def add(self, node: YamlNode) -> None:
        """Take a node as the key of the next pair, or as the value of the key before it."""
        if self.key is None:
            self.key = node
        else:
            self.pairs.append((self.key, node))
            self.key = None

    def find(self, text: str) -> tuple[YamlNode, YamlNode] | None:
        """Return the value and key of the first pair with a key of this text."""
        if self.indexed != len(self.pairs):
            self.by_text.clear()
            for key, value in self.pairs:
                if isinstance(key, Scalar):
                    self.by_text.setdefault(key.text, (value, key))
            self.indexed = len(self.pairs)
        return self.by_text.get(text)


YamlNode = Scalar | Sequence | Mapping


def read_tree(data: str | bytes) -> YamlNode | None:
    """Return the document's root node; None when there is only white space or comments. Raises YamlMistake."""
    text = data if isinstance(data, str) else _decode(data)
    for tag in islice(TAG_LINE.finditer(text), MOST_TAG_LINES, None):
        raise YamlMistake(text.count("\n", 0, tag.end()) + 1, 1, "%TAG is not used here, plain values are enough")
    try:
        return _Builder().build(yaml.parse(_Pieces(text), Loader=yaml.CSafeLoader))
    except yaml.reader.ReaderError as error:
        raise _unreadable(text, error) from error
    except yaml.MarkedYAMLError as error:
        raise _explain(text, error) from error


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        raise YamlMistake(line, column, f"the file is not UTF-8: byte 0x{data[error.start]:02x}") from error


class _Builder:
    """Builder of nodes from libyaml's events."""

    def __init__(self) -> None:
        self.open: list[Sequence | Mapping] = []
        self.anchors: dict[str, YamlNode] = {}
        self.root: YamlNode | None = None
        self.documents = 0

    def build(self, events: Iterator[yaml.Event]) -> YamlNode | None:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._document(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._start(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end()
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
        return None if isinstance(self.root, Scalar) and self.root.plain and not self.root.text else self.root

    def _document(self, event: yaml.Event) -> None:
        self.documents += 1
        if self.documents > 1:
            raise YamlMistake(*_place(event.start_mark), "a second document begins here, and a file holds only one")

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        line, column = _place(event.start_mark)
        if len(self.open) >= MAX_DEPTH:
            raise YamlMistake(line, column, f"nested {len(self.open) + 1} levels deep, the limit is {MAX_DEPTH}")
        node: Sequence | Mapping
        node = Mapping(line, column) if isinstance(event, yaml.MappingStartEvent) else Sequence(line, column)
        _refuse_tag(event, line, column)
        if event.anchor:
            self.anchors[event.anchor] = node
        self.open.append(node)

    def _end(self) -> None:
        self._place_in_parent(self.open.pop())

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        line, column = _place(event.start_mark)
        if event.tag not in ("!", "tag:yaml.org,2002:str"):
            _refuse_tag(event, line, column)
        if len(event.value) > LONGEST_TEXT:
            raise YamlMistake(line, column, TOO_LONG)
        plain = bool(event.implicit[0])
        node = Scalar(line, column, event.value, plain)
        if event.anchor:
            self.anchors[event.anchor] = node
        self._place_in_parent(node)

    def _alias(self, event: yaml.AliasEvent) -> None:
        name = str(event.anchor)
        node = self.anchors.get(name)
        line, column = _place(event.start_mark)
        if node is None:
            raise YamlMistake(line, column, _star(name))
        if any(node is parent for parent in self.open):
            raise YamlMistake(line, column, f"the alias *{name} stands inside its own anchor")
        self._place_in_parent(node)

    def _place_in_parent(self, node: YamlNode) -> None:
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        parent.weight += node.weight
        if parent.weight > MAX_NODES:
            raise YamlMistake(node.line, node.column, f"more than {MAX_NODES} keys and values, aliases written out")
        parent.add(node)


def _place(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _refuse_tag(event: yaml.CollectionStartEvent | yaml.ScalarEvent, line: int, column: int) -> None:
    if event.tag is not None:
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        raise YamlMistake(line, column, f"the tag {tag} is not used here, plain values and quotes are enough")


def _star(name: str) -> str:
    return f'*{name} without quotes is an alias in YAML, and there is no such anchor; write it in quotes: "*{name}"'


def _unreadable(text: str, error: yaml.reader.ReaderError) -> YamlMistake:
    """Return the error for a control character. libyaml reports it without a position."""
    for number, line in enumerate(text.split("\n"), 1):
        for column, char in enumerate(line, 1):
            if not (char.isprintable() or char in "\t\r\x85\u2028\u2029\ufeff" or ord(char) > 0x9F):
                return YamlMistake(number, column, f"the control character U+{ord(char):04X} is not allowed")
    return YamlMistake(1, 1, str(error.reason))


_TAB = "a tab is used for indentation, YAML allows only spaces"
_PLAIN = {
    "found unexpected end of stream": "the quote that opens here is never closed",
    "mapping values are not allowed in this context": "a second `: ` in one line (quote text that holds it), or the "
    "indentation does not fit",
    "did not find expected ',' or ']'": "the list that opens here lacks a , or its ]",
    "did not find expected ',' or '}'": "the mapping that opens here lacks a , or its }; quote text with { } [ ] ,",
    "did not find expected node content": "expected a value, or the closing ] or }",
    "did not find expected key": "a key was expected, the indentation does not fit the lines above",
    "did not find expected '-' indicator": "a `- ` was expected, the indentation does not fit the list above",
    "could not find expected ':'": "a `:` was expected after the key, the indentation may not fit the lines above",
}


def _explain(text: str, error: yaml.MarkedYAMLError) -> YamlMistake:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return YamlMistake(1, 1, f"not YAML: {error.problem}")
    line, column = _place(mark)
    lines = text.split("\n")
    row = lines[line - 1] if line <= len(lines) else ""
    problem, context = error.problem or "", error.context or ""
    if "anchor" in context or "alias" in context:
        sign, what = ("*", "an alias") if "alias" in context else ("&", "an anchor")
        message = f'a {sign} without quotes begins {what} in YAML; write the text in quotes: "{sign}…"'
        return YamlMistake(*_place(error.context_mark or mark), message)
    if "tab" in problem or "\t" in row[: len(row) - len(row.lstrip())]:
        return YamlMistake(line, row.find("\t") + 1 or column, _TAB)
    if "cannot start any token" in problem:
        char = row[column - 1 : column]
        return YamlMistake(line, column, f"a value cannot begin with {char}, write it in quotes")
    if problem in _PLAIN:
        opens = error.context_mark if "opens here" in _PLAIN[problem] and error.context_mark else mark
        return YamlMistake(*_place(opens), _PLAIN[problem])
    return YamlMistake(line, column, f"not YAML: {' '.join(filter(None, (problem, context)))}")
