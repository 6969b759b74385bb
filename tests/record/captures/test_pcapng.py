"""Blocks of pcapng, read by dpkt, which has a reader of its own."""

from __future__ import annotations

from io import BytesIO

import dpkt
from hypothesis import given
from hypothesis import strategies as st

from kproxy.record.captures import pcapng
from kproxy.record.captures.pcapng import options_of


@given(st.floats(min_value=0, max_value=4e9, allow_nan=False))
def test_times_come_back_exactly(time: float) -> None:
    """Nanoseconds hold every time of this century to the nanosecond, and today's floats bit by bit."""
    again = pcapng.seconds(pcapng.nanoseconds(time))

    assert abs(again - time) <= 0.5e-9 or again == time
    if time > 1e8:
        assert time == again


def test_another_reader_finds_the_packets() -> None:
    """dpkt gives the same packets and times; comments and odd lengths are no obstacle."""
    file = BytesIO(
        pcapng.section("kproxy", ["what", "more"])
        + pcapng.interface("client")
        + pcapng.packet(0, 1000.25, b"abc", 3)
        + pcapng.packet(0, 1001.5, b"abcd", 3000, "a comment")
        + pcapng.statistics(0, 1002.0, 3, "the end")
    )

    found = list(dpkt.pcapng.Reader(file))

    assert [(1000.25, b"abc"), (1001.5, b"abcd")] == [(float(time), data) for time, data in found]


def test_options_are_padded_each() -> None:
    """Values of any length come back, and the end of the options is marked."""
    given_ = [(1, b""), (2, b"a"), (1, b"abcd"), (3, b"abcdef")]

    data = pcapng.options(given_)

    assert len(data) % 4 == 0 and data.endswith(b"\0\0\0\0")
    assert given_ == list(options_of(data + b"\0\0\0\0", 0, "<"))
    assert pcapng.options([]) == b""


def test_notes_say_what_is_known() -> None:
    """None is left out, zero and false are not; what is no note of kproxy's says nothing."""
    note = pcapng.note(acks=0, node=None, ok=False, rules=["ä"])

    assert 'kproxy {"acks": 0, "ok": false, "rules": ["ä"]}' == note
    assert {"acks": 0, "ok": False, "rules": ["ä"]} == pcapng.read_note(note)
    assert "" == pcapng.note(node=None)
    for other in ("", "hello", "kproxy", "kproxy {", "kproxy [1]", "kproxy {]"):
        assert {} == pcapng.read_note(other)
