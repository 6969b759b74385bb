"""true is no number and 1 is not true, in all rules and settings, whatever Python thinks of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import ValidationError

import kproxy.rules.kinds
from kproxy.app.config import document as config
from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import Scenario, parse_rules
from kproxy.rules.values.model import Model
from kproxy.tools.rehearse.cases import model as cases

TRUTHS, NUMBERS = (True, False), (0, 1, 0.0, 1.0)


def models() -> list[type[Model]]:
    """All that a user can write: kinds of rules, selectors, settings, tests of rules."""
    assert config and cases
    for module in pkgutil.iter_modules(kproxy.rules.kinds.__path__, "kproxy.rules.kinds."):
        importlib.import_module(module.name)
    found: dict[type[Model], None] = {}
    new: list[type[Model]] = [Model]
    while new:
        new += [one for one in new.pop().__subclasses__() if found.setdefault(one) is None]
    return sorted(found, key=lambda one: (one.__module__, one.__qualname__))


def leaves(annotation: Any) -> Iterator[Any]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        yield from inner
    elif origin is Annotated:
        yield from leaves(inner[0])
    elif origin in (Union, UnionType):
        for one in inner:
            yield from leaves(one)
    else:
        yield annotation


ABSTRACT = {"RenameRule"}
"""Models that only others are made of."""
FIELDS = [(model, name) for model in models() if model.__name__ not in ABSTRACT for name in model.model_fields]
WRITTEN_OTHERWISE = {"transparent"}
"""Fields of which `true` is one way to write them."""


def taken(model: type[Model], name: str, value: Any) -> Any:
    """What becomes of a field's value, or the mistake. Other fields may be missing."""
    key = model.model_fields[name].alias or name
    try:
        return getattr(model.model_validate({key: value}), name)
    except ValidationError as error:
        mistakes = [one for one in error.errors() if one["loc"][:1] == (key,)]
        return ValueError if mistakes else value


@pytest.mark.parametrize(("model", "name"), FIELDS, ids=lambda one: getattr(one, "__name__", one))
def test_a_field_takes_no_truth_for_a_number_nor_the_reverse(model: type[Model], name: str) -> None:
    """Each field of each model: true is refused but where it is meant, and so are 1 and 1.0 where true is meant."""
    kinds = list(leaves(model.model_fields[name].annotation))
    if Any in kinds or name in WRITTEN_OTHERWISE:
        return
    truths = bool in kinds or any(isinstance(one, bool) for one in kinds)
    for value in TRUTHS:
        assert truths or taken(model, name, value) is ValueError, value
    for number in NUMBERS:
        got = taken(model, name, number)
        if truths and type(number) is float:
            assert got is ValueError, number
        elif truths:
            assert got is ValueError or type(got) is int, number
        elif int in kinds and float not in kinds and type(number) is float:
            assert got is ValueError, number


def test_there_are_fields_of_both() -> None:
    """So that the test above goes through something."""
    flat = [list(leaves(model.model_fields[name].annotation)) for model, name in FIELDS]
    assert sum(int in one for one in flat) > 40
    assert sum(bool in one for one in flat) > 15
    assert sum(True in [kind for kind in one if isinstance(kind, bool)] for one in flat) >= 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scenario: {repeat: 0, stages: [{for: 1s, rules: []}]}", "or true for no end, got the number 0"),
        ("scenario: {repeat: 1.0, stages: [{for: 1s, rules: []}]}", "or true for no end, got the number 1.0"),
        ("scenario: {repeat: false, stages: [{for: 1s, rules: []}]}", "or true for no end, got false"),
        ("rules: [{name: r, kind: drop, when: {once: 1}}]", "expected true or no value, got the number 1"),
        ("rules: [{name: r, kind: drop, when: {nth: true}}]", "got true"),
        ("rules: [{name: r, kind: require, idempotence: 1.0}]", "or no value, got the number 1.0"),
        ("rules: [{name: r, kind: drop, match: {acks: true}}]", "expected acks 0, 1 or all, got True"),
        ("rules: [{name: r, kind: drop, match: {acks: 1.0}}]", "expected acks 0, 1 or all, got 1.0"),
    ],
)  # fmt: skip
def test_what_is_said_of_the_wrong_one(text: str, message: str) -> None:
    """In words of the file, once."""
    with pytest.raises(DocumentError) as caught:
        parse_rules(text)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_how_often_a_scenario_is_repeated() -> None:
    """1 is once, true is without end."""
    stages = [{"for": "1s", "rules": []}]
    for written in (1, 2, True):
        repeat = Scenario.model_validate({"repeat": written, "stages": stages}).repeat
        assert (repeat, type(repeat)) == (written, type(written))
