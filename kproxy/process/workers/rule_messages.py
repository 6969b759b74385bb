"""Messages between the supervisor and a worker about rules."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from .channel import Notice, Question


class HandedRule(msgspec.Struct, frozen=True, array_like=True):
    """Rule as a worker needs it. `raw`: as it was written; `content`: a digest, the same for the same rules. `born`,
    `lives`, `resets`, `began`: of a live rule that has been in force (`rules.running`), else 0."""

    content: bytes
    raw: dict[Any, Any]
    position: str
    origin: str
    active: bool
    born: int
    lives: int
    resets: int
    began: float


class RulesState(msgspec.Struct, frozen=True):
    """Rules as all of them are to be. `number`: which of the states that the supervisor has made."""

    number: int
    seed: int
    rules: list[HandedRule]


class Prepare(Question[None], frozen=True):
    """Question to make everything ready for this state (a `RulesState`, packed), and change nothing. Refused for rules
    that cannot be made here."""

    state: bytes


class Commit(Question[None], frozen=True):
    """Question to put the state that was prepared last into force."""

    number: int


class RuleCount(msgspec.Struct, frozen=True, array_like=True):
    """Counters of a rule in a worker; `held`: requests that it holds now."""

    born: int
    resets: int
    matched: int
    fired: int
    applied: int
    held: int
    problems: int
    problem: str


class CountRules(Question[list[RuleCount]], frozen=True):
    """Question for the counters of live rules."""

    answer: ClassVar[Any] = list[RuleCount]


class ReleaseRule(Question[int], frozen=True):
    """Question to let go what a rule holds. The answer: how many requests that were."""

    answer: ClassVar[Any] = int
    born: int


class RuleNews(Notice, frozen=True):
    """Notice to be recorded in the audit: a method of its `RuleEvents`, and what it is called with."""

    method: str
    given: list[Any]
