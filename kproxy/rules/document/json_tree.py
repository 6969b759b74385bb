"""JSON text → the same tree of nodes as YAML has, with every line and column.

YAML's parser would take most JSON, but not all of it: escapes beyond the first plane come in two halves, numbers have
exponents, and a key may be longer than YAML allows. Python's own parser decides what is JSON and says what is wrong;
since that has been said, the reader here needs no checks.

No other thread goes on while a pattern is matched, and one text may be a whole document. So the patterns here take
runs of characters at once, and never look at one again (`*+`): four megabytes are matched in 40 ms.
"""

from __future__ import annotations

import json
import re

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
)

from .source import Source

_TOKEN = re.compile(
    r"""[ \t\r]*+(?:
        (?P<line>\n) | (?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+") | (?P<sign>[\[\]{}:,]) | (?P<word>[^\s\[\]{}:,"]++)
    )""",
    re.VERBOSE,
)
_HALF = re.compile("[\ud800-\udfff]")


def json_source(file: str, data: bytes) -> Source:
    """Return the source of a JSON document. One that is no JSON is a source with that mistake, and `is_yaml` is
    False."""
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
    raise ValueError(f"{constant} is no number of JSON")


def _measure(text: str) -> None:
    """Raise YamlMistake when there is too much of it: `json.loads` lets nobody else run until it is through. What is no
    JSON is left to it."""
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
