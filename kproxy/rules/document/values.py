"""Nodes → plain Python values, with our own reading of plain words.

Only decimal numbers, true, false and null are taken for what they look like; dates, base-60 (`1:30`) and octal
numbers of YAML 1.1 stay text. `yes`, `no`, `on` and `off` become booleans as YAML 1.1 has them; where text is
wanted, or as a key, they are a mistake (see `model.py`), because they are rarely meant.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from collections.abc import Mapping as Dict
from typing import Any

from kproxy.rules.values.yaml_file import Mapping, Scalar, Sequence, YamlNode

from .source import Source, Where

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
