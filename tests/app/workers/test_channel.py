"""What the two ends of a channel say to each other arrives whole, in order, and not at all once one of them is gone."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio
from pydantic import BaseModel

from kproxy.base.errors import InputError, InternalError
from kproxy.runtime.io import channel as module
from kproxy.runtime.io.channel import Channel, Streams, Unanswered, remote
from kproxy.runtime.io.reactor import Reactor

pytestmark = pytest.mark.trio


class Told(msgspec.Struct, frozen=True):
    """A result."""

    text: str
    numbers: dict[int, tuple[str, int] | None] = {}


class Shape(BaseModel):
    name: str


class Circle(Shape):
    radius: int


class Refusal(Exception):
    status, code, mistakes = 409, "taken", ("a", ("b", "c"))


class Lines:
    """A stream of `texts`; `over` is set at its end."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.over = list(texts), False

    async def begin(self) -> None:
        self.texts.append("begun")

    async def next(self) -> Told:
        return Told(self.texts.pop())

    def end(self) -> None:
        self.over = True


class Desk:
    """Remote methods of a test; `heard` are the texts of `say`."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.lines = Lines("a", "b")

    @remote()
    async def ask(self, text: str) -> Told:
        raise NotImplementedError

    @remote(0.01)
    async def ask_briefly(self) -> Told:
        return await trio.sleep_forever()

    @remote()
    def say(self, text: str) -> None:
        self.heard.append(text)

    @remote()
    async def grow(self, shape: Shape, by: int) -> Shape:
        assert isinstance(shape, Circle), type(shape)
        return Circle(name=shape.name, radius=shape.radius + by)

    @remote()
    async def shapes(self, number: int) -> Iterator[Shape]:
        return (Circle(name=f"c{at}", radius=at) for at in range(number))

    @remote()
    def read(self, first: str) -> Lines:
        self.lines.texts.append(first)
        return self.lines


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


async def test_call_both_ways_returns_typed_results(quiet_log: Any) -> None:
    """At once or later, by whichever end is called, with all types as they were."""

    async def later(text: str) -> Told:
        await trio.lowlevel.checkpoint()
        return Told(text.upper())

    async with two_ends(quiet_log) as ends:
        ends.there.on(Desk.ask, lambda text: Told(text * 2, {1: ("b1", 9092), -2: None}))
        ends.here.on(Desk.ask, later)

        assert Told("abab", {1: ("b1", 9092), -2: None}) == await ends.here.call(Desk.ask, "ab")
        assert Told("AB") == await ends.there.call(Desk.ask, "ab")


async def test_call_with_models_keeps_their_subclasses(quiet_log: Any) -> None:
    """Of arguments, of results, and of the items of an iterator, which are made one at a time."""
    async with two_ends(quiet_log) as ends:
        ends.there.serve(Desk())
        assert await ends.here.call(Desk.grow, Circle(name="c", radius=1), 2) == Circle(name="c", radius=3)
        shapes = await ends.here.call(Desk.shapes, 20_000)
        assert next(shapes) == Circle(name="c0", radius=0)
        assert sum(1 for _ in shapes) == 19_999


async def test_stream_returns_items_until_its_end(quiet_log: Any) -> None:
    async with two_ends(quiet_log) as ends:
        desk = Desk()
        ends.there.serve(desk)
        await ends.here.call(Streams.begin, 7, Desk.read.__qualname__, ["c"])
        assert [await ends.here.call(Streams.next, 7) for _ in range(2)] == [{"text": "begun", "numbers": {}},
                                                                             {"text": "c", "numbers": {}}]  # fmt: skip
        ends.here.send(Streams.end, 7)
        with pytest.raises(Unanswered, match="expected an open stream, got 7, which has ended"):
            await ends.here.call(Streams.next, 7)
        assert desk.lines.over


async def test_call_with_wrong_arguments_is_refused(quiet_log: Any) -> None:
    """Only marked methods can be called, with arguments of the annotated types."""
    async with two_ends(quiet_log) as ends:
        ends.there.serve(Desk())
        hidden: Any = SimpleNamespace(__qualname__="Desk.__init__", __name__="x", patience=9.0)
        with pytest.raises(Unanswered, match="Expected `str`, got `int`"):
            await ends.here.call(Desk.ask, 7)
        with pytest.raises(Unanswered, match=r"served here, got Desk\.__init__"):
            await ends.here.result(bytes, hidden, ())


async def test_what_is_long_and_what_is_much_arrives_in_order(quiet_log: Any) -> None:
    """Whatever the socket holds at once: what waits is sent on as it is read."""
    desk = Desk()
    texts = [str(number) * (3 if number % 50 else 300_000) for number in range(200)]
    async with two_ends(quiet_log) as ends:
        ends.there.serve(desk)
        ends.there.on(Desk.ask, Told)
        for text in texts:
            ends.here.send(Desk.say, text)

        assert Told("last") == await ends.here.call(Desk.ask, "last")
        assert texts == desk.heard


async def test_who_cannot_answer_says_why(quiet_log: Any, logged: list[dict[str, Any]]) -> None:
    """A mistake of who asks is theirs to hear; a bug is logged as well; neither ends the channel."""

    def refuse(text: str) -> Told:
        if text == "bug":
            raise ValueError("a bug")
        raise Refusal("no room") if text == "room" else InputError("not so")

    async with two_ends(quiet_log) as ends:
        with pytest.raises(Unanswered, match=r"expected a method that is served here, got Desk\.ask"):
            await ends.here.call(Desk.ask, "?")
        ends.there.on(Desk.ask, refuse)
        with pytest.raises(Unanswered, match="not so"):
            await ends.here.call(Desk.ask, "?")
        with pytest.raises(Unanswered, match="no room") as caught:
            await ends.here.call(Desk.ask, "room")
        assert caught.value.details == {"status": 409, "code": "taken", "mistakes": ["a", ["b", "c"]]}
        assert not logged
        with pytest.raises(Unanswered, match="a bug"):
            await ends.here.call(Desk.ask, "bug")
        assert [("a message could not be handled", "Desk.ask")] == [(line["event"], line["message"]) for line in logged]


async def test_the_end_of_one_is_told_to_the_other(quiet_log: Any) -> None:
    """Who waits for an answer hears that there will be none, as does who asks afterwards; notices are lost."""
    async with two_ends(quiet_log) as ends:
        asked = trio.Event()

        async def never(text: str) -> Told:
            asked.set()
            await trio.sleep_forever()
            raise AssertionError

        ends.there.serve(Desk())
        ends.there.on(Desk.ask, never)
        with pytest.raises(Unanswered, match=r"within 0\.01 s"):
            await ends.here.call(Desk.ask_briefly)
        assert not ends.here.waiting
        async with trio.open_nursery() as nursery:

            async def asks() -> None:
                with pytest.raises(Unanswered, match="has ended"):
                    await ends.here.call(Desk.ask, "while it lives")

            nursery.start_soon(asks)
            await asked.wait()
            ends.there.close("enough")
        with pytest.raises(Unanswered, match="has ended"):
            await ends.here.call(Desk.ask, "?")
        ends.here.send(Desk.say, "?")
        assert ends.lost == ["enough", "the other end is closed"]


async def test_an_end_that_reads_nothing_is_given_up(quiet_log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it is bounded; a message that is too long is refused to who sends it."""
    monkeypatch.setattr(module, "LONGEST", 1_000_000)
    monkeypatch.setattr(module, "MOST_WAITING", 2_000_000)
    async with two_ends(quiet_log) as ends:
        with pytest.raises(InternalError, match=r"Desk\.say has 1000017 bytes, at most 1000000"):
            ends.here.send(Desk.say, "x" * 1_000_000)
        ends.there.reactor.modify(ends.there.fd, 0)
        for _ in range(5):
            ends.here.send(Desk.say, "x" * 900_000)

        assert ends.here.closed
        assert "at most 2000000 may" in ends.lost[0]
