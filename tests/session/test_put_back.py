"""What becomes of the last frame of a read is put where it was, if there is room and nothing else to be done first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kproxy.session.commands import BROKER, Command, Dial, Send
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.support.frames import produce, produced

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
RENAME = "rules: [{name: names, kind: rename_topic, topics: {orders: TARGET}}]"
TARGETS = ["o", "renamed", "prod.orders.of.all"]  # shorter, as long but for a byte, longer


def dialled(target: str) -> Dialogue:
    """A session with its broker, that has nothing to do."""
    dialogue = Dialogue(RENAME.replace("TARGET", target))
    dialogue.client(request(API_VERSIONS, 0, 1)).broker(response(API_VERSIONS, 0, 1))
    assert dialogue.log == [Dial()]
    for out in dialogue.out.values():
        out.clear()
    return dialogue


def read(dialogue: Dialogue, side: int, data: bytes, room: int) -> tuple[bytes, Sequence[Command]]:
    """What passes at once of a read, in a buffer with so much room behind it, and what is wanted besides."""
    session = dialogue.session
    with memoryview(bytearray(data) + b"\xee" * room) as view:
        go = (session.from_broker if side == BROKER else session.from_client)(view, len(data), dialogue.now)
        passed = bytes(view[:go])
    commands, session.commands[:] = session.commands[:], ()
    return passed, commands


@pytest.mark.parametrize("target", TARGETS)
def test_a_renamed_frame_goes_where_it_came(target: str) -> None:
    """Both ways; with others before it, which pass as they are."""
    dialogue = dialled(target)
    other, heard = produce(2, "other"), produced(2, "other")
    asked, said = (produce(3, topic, records=b"xyz") for topic in ("orders", target))

    assert read(dialogue, 0, other + asked, 100) == (other + said, [])
    assert read(dialogue, BROKER, heard + produced(3, target), 100) == (heard + produced(3, "orders"), [])


@pytest.mark.parametrize("target", TARGETS)
def test_what_follows_of_the_frame_moves_along(target: str) -> None:
    """Of a long one, all that is in the buffer; what comes later passes as it comes."""
    dialogue = dialled(target)
    records = bytes(range(256)) * 40
    asked, said = produce(2, "orders", records=records), produce(2, target, records=records)
    cut = len(asked) - 3000

    first, commands = read(dialogue, 0, asked[:cut], 100)
    assert commands == []
    assert (first + asked[cut:], read(dialogue, 0, asked[cut:], 0)) == (said, (asked[cut:], []))


def test_without_room_it_goes_by_command() -> None:
    """Also if a byte is missing; a frame that becomes shorter needs none."""
    dialogue = dialled(long := TARGETS[-1])
    grown = len(long) - len("orders")

    for number, room in enumerate((0, grown - 1), 2):
        passed, (sent,) = read(dialogue, 0, produce(number, "orders"), room)
        assert isinstance(sent, Send)
        assert (passed, sent.side, sent.data) == (b"", BROKER, produce(number, long))
    assert read(dialogue, 0, produce(4, "orders"), grown) == (produce(4, long), [])
    assert read(dialled("o"), 0, produce(2, "orders"), 0) == (produce(2, "o"), [])


def test_one_that_is_not_the_last_goes_by_command() -> None:
    """With all that follows, in order."""
    dialogue = dialled("o")
    asked = [produce(number, "orders") for number in (2, 3)]
    passed, commands = read(dialogue, 0, b"".join([*asked, asked[0][:20]]), 100)

    assert passed + b"".join(bytes(one.data) for one in commands if isinstance(one, Send)) == (
        produce(2, "o") + produce(3, "o")
    )
    rest, more = read(dialogue, 0, asked[0][20:], 100)
    assert rest + b"".join(bytes(one.data) for one in more if isinstance(one, Send)) == produce(2, "o")


def test_the_first_frame_goes_behind_the_dial() -> None:
    """There is nobody yet to whom it could go at once."""
    dialogue = Dialogue(RENAME.replace("TARGET", "o"))
    passed, commands = read(dialogue, 0, produce(1, "orders"), 100)

    assert (passed, [type(one) for one in commands]) == (b"", [Dial, Send])
