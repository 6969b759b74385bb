"""`scenario:` of a rule document: stages of rules, one after the other.

    scenario:
      name: brown-out
      repeat: 2
      stages:
        - {for: 30s, rules: [{name: slow, kind: delay, delay: 200ms}]}
        - {for: 10s, rules: []}

Its time begins when the document is loaded. What stands under the document's own `rules:` is in force all the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from kproxy.rules.values.model import Model, Wrong, found
from kproxy.rules.values.quantities import Seconds


def how_often(value: Any) -> int | bool:
    """Return `value` if it is a whole number from 1, or true. Raises ValueError."""
    if value is True or (type(value) is int and value >= 1):
        return value
    raise ValueError(f"a whole number from 1 is wanted, or true for without end, found {found(value)}")


Repetition = Annotated[
    int | bool,
    BeforeValidator(how_often, json_schema_input_type=Annotated[int, Field(ge=1)] | Literal[True]),
]


class Stage(Model):
    """Stage of a scenario: some rules and how long they are in force."""

    name: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="shown in logs and by the admin API; by default the stage's number, from 1"
    )
    for_: Annotated[Seconds, Field(ge=0.1)] | None = Field(
        default=None, alias="for", description="how long it lasts; the last one may go on for ever"
    )
    rules: list[Any] = Field(description="rules as anywhere; their names are unique over all stages and documents")


class Scenario(Model):
    """Scenario of a rule document: stages, one after the other."""

    name: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="shown in logs and by the admin API"
    )
    repeat: Repetition | None = Field(
        default=None, description="how often all stages are gone through, true: without end; once if left out"
    )
    stages: list[Stage] = Field(min_length=1, description="what happens in turn")

    def stage_name(self, index: int) -> str:
        """Return the name of a stage, or its number from 1 if it has none."""
        return self.stages[index].name or str(index + 1)

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Yield stages without an end that are not the last one, as mistakes: they leave nothing to what follows."""
        stages = raw.get("stages")
        if not isinstance(stages, list):
            return
        repeat = raw.get("repeat")
        again = repeat is True or (isinstance(repeat, int) and repeat > 1)
        for index, stage in enumerate(stages):
            if isinstance(stage, dict) and stage.get("for") is None and (again or index < len(stages) - 1):
                what = "it is repeated" if again and index == len(stages) - 1 else "others follow it"
                yield ("stages", index), f'"for" is missing: this stage would never end, and {what}'


class Moment(NamedTuple):
    """Point in a scenario: its round and stage, both from 0, when that stage began and when it ends (infinity: never),
    in seconds since the scenario began."""

    round: int
    stage: int
    began: float
    ends: float


def moment(scenario: Scenario, elapsed: float) -> Moment | None:
    """Return the point that a scenario is at so many seconds after it began; None when it is over."""
    lengths = [math.inf if stage.for_ is None else stage.for_ for stage in scenario.stages]
    whole = math.fsum(lengths)
    endless = whole == math.inf
    number, rest = (0, elapsed) if endless else (int(elapsed // whole), elapsed % whole)
    if scenario.repeat is not True and number >= (scenario.repeat or 1):
        return None
    before, start = 0.0 if endless else number * whole, 0.0
    last = len(lengths) - 1
    for index, length in enumerate(lengths):
        if rest < start + length or index == last:
            return Moment(number, index, before + start, before + start + length)
        start += length
    raise AssertionError("a scenario without stages")
