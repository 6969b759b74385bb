"""What the two ends of a channel say to each other arrives whole, in order, and not at all once one of them is gone."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec
import pytest
import trio

from kproxy.app.workers import channel as module
from kproxy.app.workers.channel import Channel, Notice, Question, Unanswered
from kproxy.base.errors import InputError, InternalError
from kproxy.runtime.io.reactor import Reactor

pytestmark = pytest.mark.trio


class Told(msgspec.Struct, frozen=True):
    """An answer."""

    text: str
    numbers: dict[int, tuple[str, int] | None] = {}


class Ask(Question[Told], frozen=True):
    """A question."""

    answer: ClassVar[Any] = Told
    text: str


class Say(Notice, frozen=True):
    """A notice."""

    text: str


class Ends:
    """Both ends in one loop; `lost` is what each was told of its end."""

    def __init__(self, reactor: Reactor, log: Any) -> None:
        here, there = socket.socketpair()
        self.lost: list[str] = []
        self.here = Channel(here, reactor, log, self.lost.append)
        self.there = Channel(there, reactor, log, self.lost.append)


@asynccontextmanager
async def two_ends(log: Any) -> AsyncIterator[Ends]:
    reactor = Reactor(log)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run)
        ends = Ends(reactor, log)
        yield ends
        ends.here.close()
        ends.there.close()
        nursery.cancel_scope.cancel()
    reactor.close()


async def test_questions_are_answered_both_ways(quiet_log: Any) -> None:
    """At once or later, by whichever end is asked, with all types as they were."""

    async def later(ask: Ask) -> Told:
        await trio.lowlevel.checkpoint()
        return Told(ask.text.upper())

    async with two_ends(quiet_log) as ends:
        ends.there.on_question(Ask, lambda ask: Told(ask.text * 2, {1: ("b1", 9092), -2: None}))
        ends.here.on_question(Ask, later)

        assert Told("abab", {1: ("b1", 9092), -2: None}) == await ends.here.ask(Ask("ab"))
        assert Told("AB") == await ends.there.ask(Ask("ab"))


async def test_what_is_long_and_what_is_much_arrives_in_order(quiet_log: Any) -> None:
    """Whatever the socket holds at once: what waits is sent on as it is read."""
    heard: list[str] = []
    texts = [str(number) * (3 if number % 50 else 300_000) for number in range(200)]
    async with two_ends(quiet_log) as ends:
        ends.there.on_notice(Say, lambda say: heard.append(say.text))
        ends.there.on_question(Ask, lambda ask: Told(ask.text))
        for text in texts:
            ends.here.tell(Say(text))

        assert Told("last") == await ends.here.ask(Ask("last"))
        assert texts == heard


async def test_who_cannot_answer_says_why(quiet_log: Any, logged: list[dict[str, Any]]) -> None:
    """A mistake of who asks is theirs to hear; a bug is logged as well; neither ends the channel."""

    def refuse(ask: Ask) -> Told:
        if ask.text == "bug":
            raise ValueError("a bug")
        raise InputError("not so")

    async with two_ends(quiet_log) as ends:
        with pytest.raises(Unanswered, match="nobody here knows what Ask is"):
            await ends.here.ask(Ask("?"))
        ends.there.on_question(Ask, refuse)
        with pytest.raises(Unanswered, match="not so"):
            await ends.here.ask(Ask("?"))
        assert not logged
        with pytest.raises(Unanswered, match="a bug"):
            await ends.here.ask(Ask("bug"))
        assert [("a message could not be handled", "Ask")] == [(line["event"], line["message"]) for line in logged]


async def test_the_end_of_one_is_told_to_the_other(quiet_log: Any) -> None:
    """Who waits for an answer hears that there will be none, as does who asks afterwards; notices are lost."""
    async with two_ends(quiet_log) as ends:
        asked = trio.Event()

        async def never(ask: Ask) -> Told:
            if ask.text == "while it lives":
                asked.set()
            await trio.sleep_forever()
            raise AssertionError

        ends.there.on_question(Ask, never)
        with pytest.raises(Unanswered, match=r"within 0\.01 s"):
            await ends.here.ask(Ask("?"), patience=0.01)
        assert not ends.here.waiting
        async with trio.open_nursery() as nursery:

            async def asks() -> None:
                with pytest.raises(Unanswered, match="has ended"):
                    await ends.here.ask(Ask("while it lives"))

            nursery.start_soon(asks)
            await asked.wait()
            ends.there.close("enough")
        with pytest.raises(Unanswered, match="has ended"):
            await ends.here.ask(Ask("?"))
        ends.here.tell(Say("?"))
        assert ends.lost == ["enough", "the other end is closed"]


async def test_an_end_that_reads_nothing_is_given_up(quiet_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it is bounded; a message that is too long is refused to who sends it."""
    monkeypatch.setattr(module, "LONGEST", 1_000_000)
    monkeypatch.setattr(module, "MOST_WAITING", 2_000_000)
    async with two_ends(quiet_log) as ends:
        with pytest.raises(InternalError, match="Say has 1000012 bytes, at most 1000000"):
            ends.here.tell(Say("x" * 1_000_000))
        ends.there.reactor.modify(ends.there.fd, 0)
        for _ in range(5):
            ends.here.tell(Say("x" * 900_000))

        assert ends.here.closed
        assert "at most 2000000 may" in ends.lost[0]
