"""What passes a client's connection, kept as frames and paired."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.testing.recorder import Frames, Line, Tape

NOW = 7.0


def frame(correlation: int, body: bytes = b"") -> bytes:
    """A request's (api key 0, version 0), size in front."""
    data = b"\0\0\0\0" + correlation.to_bytes(4, "big") + body
    return len(data).to_bytes(4, "big") + data


def answer(correlation: int, body: bytes = b"") -> bytes:
    """A response's, size in front."""
    data = correlation.to_bytes(4, "big") + body
    return len(data).to_bytes(4, "big") + data


@pytest.fixture
def line() -> Line:
    """A connection of a tape that keeps 100 bytes or 5 exchanges."""
    session: Any = SimpleNamespace(number=1)
    return Line(Tape(100, 5), session)


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_frames_however_they_come(chunk: int) -> None:
    """Whole, in pieces, several at once; what is not complete waits."""
    frames, data = Frames(), frame(1, b"abc") + frame(2) + frame(3)[:-1]

    found = [one for at in range(0, len(data), chunk) for one in frames.add(data[at : at + chunk])]

    assert found == [frame(1, b"abc")[4:], frame(2)[4:]]
    assert list(frames.add(frame(3)[-1:])) == [frame(3)[4:]]


@pytest.mark.parametrize("size", [-5, 2**31 - 1])
def test_a_size_that_cannot_be_one(size: int) -> None:
    """What a rule like bad_length makes: no frames can be told apart from there on."""
    frames = Frames()

    assert list(frames.add(frame(1) + size.to_bytes(4, "big", signed=True) + b"rest")) == [frame(1)[4:]]
    assert list(frames.add(frame(2))) == []
    assert frames.cut == size


def test_answers_find_their_requests(line: Line) -> None:
    """In whatever order they leave; one that belongs to nothing, and one that leaves twice, change nothing."""
    line.said(frame(1) + frame(2) + frame(3), NOW)
    line.heard(answer(2, b"two") + answer(1, b"one"), NOW + 1)
    line.heard(answer(9) + answer(2, b"again"), NOW + 2)

    assert [(one.response or b"")[4:] for one in line.tape.taken] == [b"one", b"two", b""]
    assert [(one.came, one.answered) for one in line.tape.taken] == [(7, 8), (7, 8), (7, None)]


def test_answers_of_one_correlation_id_are_in_order(line: Line) -> None:
    """A client sends it three times at once: each request has its own answer, also when the first is forgotten."""
    line.said(frame(7, b"one") + frame(7, b"two") + frame(7, b"three"), 1.0)
    first, second, third = line.tape.taken
    line.heard(answer(7, b"1"), 2.0)
    line.forget(second)
    line.heard(answer(7, b"3"), 3.0)
    line.heard(answer(7, b"4"), 4.0)

    assert [one.answered for one in (first, second, third)] == [2.0, None, 3.0]
    assert not line.waiting


def test_no_more_is_kept_than_there_may_be(line: Line) -> None:
    """The oldest go, counted, whether it is their number or their bytes; late answers to them are not kept either."""
    for number in range(7):
        line.said(frame(number), NOW)
    assert (len(line.tape.taken), line.tape.forgotten, line.tape.bytes) == (5, 2, 40)

    line.heard(answer(0, b"late") + answer(6, b"x" * 88), NOW)
    assert [one.correlation[3] for one in line.tape.taken] == [6]
    assert (line.tape.forgotten, line.tape.bytes, set(line.waiting)) == (6, 100, set())


def test_one_id_for_several(line: Line) -> None:
    """Answers leave in the order of the requests, so each finds its own; acks=0 has none."""
    no_answer = frame(1, b"\0\1a" + b"\0\0")  # Produce 0 of client "a" with acks=0
    line.said(no_answer + frame(1, b"\0\1b\0\1") + frame(1, b"\0\1c\0\1"), NOW)
    line.heard(answer(1, b"first") + answer(1, b"second"), NOW)

    assert [(one.response or b"")[4:] for one in line.tape.taken] == [b"", b"first", b"second"]
    assert line.waiting == {}


def test_what_cannot_be_told_apart_is_on_record(line: Line) -> None:
    """By connection and direction, once."""
    line.said(frame(1) + (-5).to_bytes(4, "big", signed=True) + b"rest", NOW)
    line.said(frame(2), NOW)

    assert line.tape.cut == {(1, "request"): -5}
    line.tape.clear()
    assert line.tape.cut == {}


def test_clearing(line: Line) -> None:
    """Answers that are due from before belong to nothing; numbers begin anew."""
    line.tape.lines[1] = line
    line.said(frame(1), NOW)

    line.tape.clear()
    line.heard(answer(1), NOW)
    line.said(frame(1), NOW)

    assert [one.response for one in line.tape.taken] == [None]
    assert (line.tape.forgotten, line.tape.bytes) == (0, 8)
