"""Dialogues in which rules hold frames: a driver that obeys when a frame is let go, as connections do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kproxy.rules.rule_set import HowGone
from kproxy.session.held_frames import HeldFrame
from kproxy.tools.rehearse.dialogue import Dialogue


class HeldOwner:
    """Driver of a dialogue's session."""

    closed = False
    cause = ""
    client_address = ("127.0.0.1", 40000)
    broker_address = node = None
    client = SimpleNamespace(sock=None)

    def __init__(self, talk: Dialogue) -> None:
        self.talk, self.session, self.facts = talk, talk.session, talk.session.facts
        self.listener = SimpleNamespace(name=self.facts.listener, tls=None)

    def watch(self, work: Callable[[], None]) -> None:
        work()

    def released(self) -> None:
        self.talk.session.released(self.talk.now)
        self.talk.obey()


class LetGo:
    """Frame that a rule holds, which notes `mark` in `marks` when it is let go."""

    def __init__(self, marks: list[Any], mark: Any) -> None:
        self.marks, self.mark = marks, mark

    def let_go(self, how: HowGone = "resumed", who: str = "") -> None:
        self.marks.append(self.mark)


def holding(rules: str, **more: Any) -> Dialogue:
    """Return a dialogue under these rules, whose session has a driver."""
    talk = Dialogue(rules, **more)
    talk.session.owner = HeldOwner(talk)
    talk.shared.desk.clock = lambda: talk.now
    return talk


def held_in(talk: Dialogue) -> list[HeldFrame]:
    """Return what is held now, oldest first."""
    return list(talk.shared.desk.held.values())


def only(talk: Dialogue) -> HeldFrame:
    """Return the one frame that is held."""
    (held,) = held_in(talk)
    return held
