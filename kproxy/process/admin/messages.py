"""Messages from the supervisor's admin API to workers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from kproxy.process.workers.channel import Notice, Question
from kproxy.sinks.merged_metrics import MetricSamples


class Operated(msgspec.Struct, frozen=True):
    """Answer of an operation: its JSON; or with which status, code and message it was refused."""

    shown: Any = None
    status: int = 200
    code: str = ""
    message: str = ""


class Operate(Question[Operated], frozen=True):
    """Question to do what the API asks of a member, by its name, with these arguments."""

    answer: ClassVar[Any] = Operated
    name: str
    arguments: list[Any]


class Measure(Question[list[MetricSamples]], frozen=True):
    """Question for what a worker has counted. `growing`: only what must not be lost when it ends."""

    answer: ClassVar[Any] = list[MetricSamples]
    growing: bool = False


class BeginTail(Question[None], frozen=True):
    """Question to keep from now on what this filter holds for; `number` is the listener's."""

    number: int
    filter: str


class Lines(msgspec.Struct, frozen=True):
    """Lines of a tail, with their ends; none when there was nothing to tell for a while. `dropped`: exchanges that did
    not fit so far."""

    text: bytes
    dropped: int = 0


class NextLines(Question[Lines], frozen=True):
    """Question for the lines since the last one; answered as soon as there is something."""

    answer: ClassVar[Any] = Lines
    number: int


class EndTail(Notice, frozen=True):
    """Notice that the listener is gone."""

    number: int


class JoinCapture(Question[None], frozen=True):
    """Question to write into a capture from now on. `owner`: its place in the shared table. `head`: see
    `capture.policy`."""

    path: str
    owner: bytes
    filter: str
    payload: Literal["none", "head", "full"]
    head: int
    side: Literal["client", "broker", "both"]
    size: int
    seconds: float
    exchanges: int | None
