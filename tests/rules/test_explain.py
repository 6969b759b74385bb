"""Pydantic's findings in our own words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from kproxy.app.config.document import Config
from kproxy.base.errors import RENAMED
from kproxy.rules.kinds import KINDS
from kproxy.rules.values.model import Model, found, unknown, validate
from kproxy.rules.values.quantities import Seconds
from kproxy.rules.values.source import Source, nearest, to_value


class Inner(Model):
    size: Annotated[int, Field(ge=1, le=9)] = 1
    mode: Literal["hide", "pass"] = "hide"


class Outer(Model):
    name: str
    ratio: float = 0.0
    flag: bool = False
    words: list[str] = Field(default_factory=list)
    inner: Inner = Inner()
    wait: Seconds = Field(default=1.0, ge=0.001, le=600, description="bounds in the field")
    pause: Annotated[Seconds, Field(le=600)] = 1.0

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Any:
        if raw.get("ratio") == raw.get("name"):
            yield ("ratio",), "name and ratio are {equal}"


def mistakes(text: str) -> list[str]:
    source = Source("f", text)
    validate(Outer, to_value(source), source)
    return [line.removeprefix("f:") for line in source.lines()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: 12", '1:7: expected text, got the number 12; write "12"'),
        ("name: No", '1:7: expected text, got the boolean false; write "No"'),
        ("name: true", '1:7: expected text, got true; write "true"'),
        ("name: [a]", "1:7: expected text, got a list"),
        ("name:", "1:6: expected text, got nothing"),
        ("flag: true", '1:1: "name" is missing'),
        ("name: a\nratio: b", '2:8: expected a number, got text "b"'),
        ("name: a\nflag: 1", "2:7: expected true or false, got the number 1"),
        ("name: a\nwords: b", '2:8: expected a list, got text "b"'),
        ("name: a\ninner: b", '2:8: expected a mapping, got text "b"'),
        ("name: a\ninner: {size: '1'}", '2:15: expected a whole number, got text "1"'),
        ("name: a\ninner: {size: true}", "2:15: expected a whole number, got true"),
        ("name: a\ninner: {size: 0}", "2:15: expected at least 1, got 0"),
        ("name: a\ninner: {size: 10}", "2:15: expected at most 9, got 10"),
        ("name: a\ninner: {mode: hid}", '2:15: expected one of hide, pass, got text "hid", did you mean "hide"?'),
        ("name: a\ninner: {sise: 1}", '2:9: unknown key "sise", did you mean "size"? allowed: size, mode'),
        ("name: a\nwait: 0ms", "2:7: expected at least 0.001 s, got 0ms"),
        ("name: a\nwait: 11min", "2:7: expected at most 600 s, got 11min"),
        ("name: a\nwait: 601", "2:7: expected at most 600, got 601"),
        ("name: a\npause: 11min", "2:8: expected at most 600 s, got 11min"),
        ("name: a\nratio: a", '2:8: expected a number, got text "a"'),
        ("5", "1:1: expected a mapping, got the number 5"),
    ],
)
def test_each_mistake_is_said_plainly(text: str, expected: str) -> None:
    assert expected in mistakes(text)


def test_mistakes_between_fields_are_reported_with_the_others() -> None:
    assert mistakes("nam: b\nname: a\nratio: a\ninner: {x: 1}") == [
        '1:1: unknown key "nam", did you mean "name"? allowed: name, ratio, flag, words, inner, wait, pause',
        '3:8: expected a number, got text "a"',
        "3:8: name and ratio are {equal}",
        '4:9: unknown key "x", allowed: size, mode',
    ]


def test_the_nearest_word_ignores_case() -> None:
    assert nearest("produce", ["Produce", "Fetch"]) == "Produce"
    assert nearest("zzz", ["Produce", "Fetch"]) is None
    assert unknown("API", "produse", ["Produce"]) == 'unknown API "produse", did you mean "Produce"? allowed: Produce'


def test_long_text_is_shown_in_part() -> None:
    assert len(found("x" * 1000)) < 80


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, names in RENAMED["key"].items() for new in names])
def test_renamed_key_is_reported_with_its_new_name(old: str, new: str) -> None:
    models = [model for model in models_below(Model, Config, *KINDS.values()) if new in model.keys()]  # noqa: SIM118
    assert models, f"no model has a key {new}"
    for model in models:
        source = Source("f", f"{old}: 1")
        assert validate(model, to_value(source), source) is None
        assert any(":1:1: unknown" in line and f'"{old}" (renamed to "{new}")' in line for line in source.lines())


def test_renamed_key_of_a_kind_without_the_new_one_has_a_hint() -> None:
    """Each fault could be `lasting`; a rule that is not a fault cannot be permanent."""
    assert 'unknown key "lasting" (renamed to "permanent", which is not allowed here), allowed: ' in unknown(
        "key", "lasting", ["name", "kind"]
    )


def models_below(*models: type[Model]) -> list[type[Model]]:
    return [one for model in models for one in (model, *models_below(*model.__subclasses__()))]
