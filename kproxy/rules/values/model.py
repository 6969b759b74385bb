"""Base of all models that users write, and the translation of pydantic's errors into errors with positions.

`Model` adds unknown keys with the nearest valid key, and `cross_check` for several fields. Both are reported together
with errors in single fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from kproxy.base.errors import RENAMED, renamed
from kproxy.rules.values.source import LONGEST_MESSAGE, WORDS_1_1, Source, Where, counted, nearest

KEY = "[key]"
"""Last part of a path that means the key itself; pydantic's own convention."""

Wrong = tuple[Where, str]
"""A path below the model (ending in KEY for a key) and a message."""


class Model(BaseModel):
    """Base of rules and settings: frozen, no unknown keys, no conversions between text and numbers.

    A model is compiled when it is first used: there are many kinds, and a process uses a few of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Return errors that concern several fields of the raw values. Override."""
        return ()

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys that may be written, in order of declaration."""
        return [info.alias or name for name, info in cls.model_fields.items()]

    @classmethod
    def unknown_key(cls, name: object) -> str:
        """Return the message for a key that this model does not have."""
        return unknown("key", name, cls.keys())

    @model_validator(mode="wrap")
    @classmethod
    def _all_at_once(cls, data: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        if not isinstance(data, dict):
            return handler(data)
        known = cls.keys()
        wrong = [_detail((name, KEY), cls.unknown_key(name), name) for name in data if name not in known]
        wrong += [_detail(where, message, None) for where, message in cls.cross_check(data)]
        wrong += [_detail((name,), message, None) for name, message in _numbers_for_truths(cls, data)]
        try:
            result = handler({name: value for name, value in data.items() if name in known})
        except ValidationError as error:
            wrong += [_again(one) for one in error.errors(include_url=False)]
        if wrong:
            raise ValidationError.from_exception_data(cls.__name__, wrong)
        return result


M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], value: Any, source: Source, at: Where = (), context: Any = None) -> M | None:
    """Return the model, or None with all errors noted in `source` below the path `at`."""
    try:
        with counted(source.hints):
            return model.model_validate(value, context=context)
    except ValidationError as error:
        for mistake in error.errors(include_url=False):
            _note(source, (*at, *mistake["loc"]), mistake)
        return None


def wrong(title: str, mistakes: Iterable[Wrong]) -> ValidationError | None:
    """Return several errors as one error to raise from a validator, or None."""
    details = [_detail(where, message, None) for where, message in mistakes]
    return ValidationError.from_exception_data(title, details) if details else None


MOST_COMPARED = 1000
"""Valid words among which the nearest one is looked for: it costs microseconds for each, a hundred times a document."""


class ValidWords:
    """Valid words of one place, called `what`. Works for thousands of words and errors."""

    def __init__(self, what: str, words: Iterable[str]) -> None:
        self.what, self.words = what, list(words)
        self.known = frozenset(self.words)
        length, self.listed = 0, ""
        for count, word in enumerate(self.words):
            length += len(word)
            if length > LONGEST_MESSAGE:  # a message ends there
                self.listed = ", ".join(self.words[: count + 1])
                break
        else:
            self.listed = ", ".join(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.known

    def unknown(self, word: object) -> str:
        """Return a message such as `unknown key "topcs", did you mean "topics"? allowed: …`."""
        if hint := renamed("key", word, self.known):
            return f'unknown {self.what} "{word}"{hint}'
        close = nearest(word, self.words) if len(self.words) <= MOST_COMPARED else None
        hint = f', did you mean "{close}"?' if close else ","
        if word == "lasting":  # other former keys are common words
            hint = f' (renamed to "{RENAMED["key"][word][0]}", which is not allowed here),'
        return f'unknown {self.what} "{word}"{hint} allowed: {self.listed}'[: LONGEST_MESSAGE + 1]


def unknown(what: str, word: object, words: Iterable[str]) -> str:
    """Return the message about an unknown word. `ValidWords` is faster for many."""
    return ValidWords(what, words).unknown(word)


def found(value: Any) -> str:
    """Return the value in words: `text "abc"`, `the number 5`, `a list`, `nothing`."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {value}"
        case str():
            return f'text "{value if len(value) <= 60 else value[:57] + "…"}"'
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return str(value)


def _detail(where: Where, message: str, value: Any) -> InitErrorDetails:
    escaped = PydanticCustomError("kproxy", "{message}", {"message": message})  # a template of its own would eat braces
    return InitErrorDetails(type=escaped, loc=where, input=value)


def _numbers_for_truths(model: type[BaseModel], data: dict[Any, Any]) -> Iterator[tuple[str, str]]:
    """Yield numbers where a boolean is expected: pydantic treats 1 and 1.0 as equal to `Literal[True]`."""
    for name, words, numbers in _truths(model):
        value = data.get(name)
        if value in (0, 1) and (type(value) is float or (type(value) is int and not numbers)):
            yield name, _choice(value, words)


@cache
def _truths(model: type[BaseModel]) -> tuple[tuple[str, str, bool], ...]:
    """Return keys that allow booleans among other choices: key, choices, whether numbers are allowed."""
    choices = []
    for name, field in model.model_fields.items():
        leaves = list(_leaves(field.annotation))
        words = [repr(leaf) for leaf in leaves if not isinstance(leaf, type)]
        if any(isinstance(leaf, bool) for leaf in leaves):
            numbers = int in leaves
            choices.append((field.alias or name, ", ".join(["a whole number"] * numbers + words), numbers))
    return tuple(choices)


def _leaves(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows, and the values of its literals."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        yield from inner
    elif origin is Annotated:
        yield from _leaves(inner[0])
    elif origin in (Union, UnionType):
        for part in inner:
            yield from _leaves(part)
    elif isinstance(annotation, type):
        yield annotation


def _again(error: ErrorDetails) -> InitErrorDetails:
    """Return an error that pydantic reported, ready to be reported once more from a wrapping validator."""
    context = error.get("ctx", {})
    if error["type"] == "kproxy":
        return _detail(error["loc"], context["message"], error["input"])
    return InitErrorDetails(type=error["type"], loc=error["loc"], input=error["input"], ctx=context)


def _note(source: Source, where: Where, error: ErrorDetails) -> None:
    key = bool(where) and where[-1] == KEY
    path = where[:-1] if key else where
    if error["type"] == "missing":
        source.note(path[:-1], f'"{path[-1]}" is missing')
        return
    source.note(path, "; ".join(_words(source, path, error, key)), key=key)


_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_COMPARED = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
_COMPARISON = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}


def _words(source: Source, where: Where, error: ErrorDetails, key: bool) -> Iterator[str]:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "kproxy":
        yield context["message"]
    elif kind == "value_error":
        yield str(context["error"])
    elif kind == "string_type" and not isinstance(value, dict | list | None):
        written = source.scalar(where)
        yield _quote_it(value, written.text if written is not None and not key else str(value))
    elif kind in _EXPECTED:
        yield f"expected {_EXPECTED[kind]}, got {found(value)}"
    elif kind in _COMPARED:
        sign = _COMPARED[kind]
        shown = str(value) if key else _as_written(source, where, value)
        bound = f"{_COMPARISON[sign]} {str(context[sign]).removesuffix('.0')}{_unit(shown)}"
        yield f"expected {bound}, got {shown}"
    elif kind == "literal_error":
        yield _choice(value, context["expected"])
    elif kind == "too_short":
        least = context["min_length"]
        yield f"expected at least {least} {'entry' if least == 1 else 'entries'}, got {context['actual_length']}"
    elif kind == "string_too_short":
        text = f"text of at least {context['min_length']} characters, got {len(value)}"
        yield "expected text, got empty text" if value == "" else f"expected {text}"
    else:
        message = error["msg"]
        yield f"{message[0].lower()}{message[1:]}, got {found(value)}"


def _as_written(source: Source, where: Where, value: Any) -> str:
    """Return a value as written: for a bound in a field, pydantic only has the number of `200ms`."""
    written = source.scalar(where)
    return str(value) if written is None else written.text


def _unit(value: str) -> str:
    """Return the unit of a bound for this text. A plain number has none."""
    if not value.strip()[-1:].isalpha():
        return ""
    if "/" in value:
        return " per second"
    return " bytes" if value.strip().endswith("B") else " s"


def _quote_it(value: Any, written: str) -> str:
    if isinstance(value, bool) and written.lower() in WORDS_1_1:
        kind = f"the boolean {str(value).lower()}"
    else:
        kind = found(value)
    return f'expected text, got {kind}; write "{written}"'


def _choice(value: Any, expected: str) -> str:
    words = [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]
    words = [word.lower() if word in ("True", "False") else word for word in words]
    if words == ["true"]:
        return f"expected true or no value, got {found(value)}"
    hint = renamed("value", value, words) if isinstance(value, str) else ""
    close = nearest(value, words) if isinstance(value, str) and not hint else None
    hint = hint or (f', did you mean "{close}"?' if close else "")
    return f"expected one of {', '.join(words)}, got {found(value)}{hint}"
