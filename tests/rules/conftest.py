"""Shared by the tests of rules that change while they are at work."""

from __future__ import annotations

from typing import Literal

import pytest

from kproxy.rules.exchange import FrameDepth
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import Direction, Effect, LiveRule


class Tiny(LiveRule):
    """Does nothing, and can be counted."""

    example = "- {name: one, kind: tiny}\n"
    kind: Literal["tiny"]
    size: int = 0

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        return FrameDepth.HEADER

    def start(self) -> Effect:
        return Effect()


class TinyQuota(Tiny):
    """The same, of another family."""

    family = "quota"
    kind: Literal["tiny_quota"]


class TinyCode(Tiny):
    """The same, as if it ran code."""

    family = "code"
    example = "- {name: one, kind: tiny_code}\n"
    kind: Literal["tiny_code"]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live kinds for tests: tiny (a fault), tiny_quota, tiny_code."""
    for name, kind in (("tiny", Tiny), ("tiny_quota", TinyQuota), ("tiny_code", TinyCode)):
        monkeypatch.setitem(KINDS, name, kind)
