"""Long held frames, and thousands of them: calls of the admin API about them yield to other tasks.

A stretch is the work between two yield points or two steps of a task (tests/support/stretches.py).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from time import thread_time
from typing import Any

import pytest
from pydantic import ValidationError

from kproxy.admin.held import ResumeBody
from kproxy.admin.operation import has_few_values
from kproxy.protocol.records import Record, encode_batch
from kproxy.tools.rehearse.dialogue import request, response
from tests.support.frames import produce
from tests.support.held_api import Held
from tests.support.pace import within
from tests.support.stretches import IN_BOTH_UNITS, TRIES, Unit

pytestmark = pytest.mark.trio
PRODUCE, FETCH, METADATA, HEARTBEAT = 0, 1, 3, 12
LONGEST = {"lines": 30_000, "seconds": 0.05}
"""Limits of work during which no other task runs."""
TOPICS = 40_000
LONG = 12 << 20


async def is_short(work: Callable[[], Awaitable[None]], unit: Unit, again: Callable[[], None] = lambda: None) -> None:
    """Fail if a stretch of this work is long. `again` prepares another attempt."""
    await unit.check_steps(work, again, longest=LONGEST[unit.name])


def wide(name: str = "topic") -> bytes:
    """A Metadata request as many topics as most clients never have."""
    return request(METADATA, 8, 1, topics=[{"name": f"{name}-{at:09}"} for at in range(TOPICS)])


def deep() -> bytes:
    """A Produce request with one long record, and many short ones behind it."""
    long = encode_batch([Record(0, 1700000000000, b"k", Random(1).randbytes(LONG))])
    short = encode_batch([Record(at, 1700000000000, b"k", b"v" * 20) for at in range(20_000)])
    return produce(1, ("orders", 0, long), ("orders", 1, short))


NAMES = [{"path": f"topics[{at}].name", "value": "x" * 300} for at in range(10_000)]
WRONG = [{"path": f"topics[{at}].nam", "value": "x"} for at in range(10_000)]
RECORD = "topic_data[0].partition_data[{}].records[{}].value"
VALUES = [{"path": RECORD.format(1, at), "value": "y" * 200} for at in range(10_000)]


@pytest.fixture
def held(make_held: Callable[..., Held]) -> Held:
    return make_held("at: both, hold_for: 10m")


@IN_BOTH_UNITS
@pytest.mark.parametrize("frame", [wide, deep], ids=["many topics", "long records"])
async def test_get_of_a_long_held_frame_yields(held: Held, frame: Callable[[], bytes], unit: Unit) -> None:
    held.talk.client(frame())

    async def look() -> None:
        shown = await held.api("GET", "/api/held/1-1")
        assert len(shown.json["frame"]["steps"]) > 10

    await is_short(look, unit)


@pytest.mark.deep
@IN_BOTH_UNITS
@pytest.mark.parametrize(
    ("frame", "changes", "status"),
    [(wide, NAMES, 200), (wide, WRONG, 422), (deep, VALUES, 200),
     (deep, [{"path": RECORD.format(0, 0), "value": "z" * 3_000_000}], 200)],
    ids=["many fields", "many mistakes", "many records", "a long record"],
)  # fmt: skip
async def test_edit_of_a_long_held_frame_yields(
    held: Held, frame: Callable[[], bytes], changes: list[Any], status: int, unit: Unit
) -> None:
    held.talk.client(frame())

    async def preview() -> None:
        assert (await held("preview", set=changes)).status == status

    async def resume() -> None:
        assert (await held("resume", set=changes)).status == status

    def again() -> None:
        held.talk = held.connect(1)
        held.talk.client(frame())

    await is_short(preview, unit)
    await is_short(resume, unit, again)


@pytest.mark.deep
@IN_BOTH_UNITS
async def test_answer_to_a_long_held_frame_yields(held: Held, unit: Unit) -> None:
    data = wide()

    def again() -> None:
        held.talk = held.connect(1)
        held.talk.client(data)

    async def bytes_() -> None:
        given = b64encode(data[4:].replace(b"topic", b"other")).decode()
        assert (await held("resume", bytes=given)).status == 200

    async def error() -> None:
        assert (await held("answer", error="NOT_LEADER_OR_FOLLOWER")).status == 200

    async def body() -> None:
        topics = [{"name": f"topic-{at}", "partitions": []} for at in range(8_000)]
        assert (await held("answer", body={"topics": topics})).status == 200

    for work in (bytes_, error, body):
        again()
        await is_short(work, unit, again)


@pytest.mark.deep
@IN_BOTH_UNITS
async def test_edit_of_a_long_held_response_yields(held: Held, unit: Unit) -> None:
    topics = [{"name": f"topic-{at}", "partitions": [{"partition_index": 0}]} for at in range(TOPICS)]
    answer = response(METADATA, 8, 1, topics=topics)

    def again() -> None:
        held.talk = held.connect(1)
        held.talk.client(request(METADATA, 8, 1, topics=None))
        next(iter(held.desk.held.values())).let_go()
        held.talk.broker(answer)

    async def look() -> None:
        assert (await held.api("GET", "/api/held/1-2")).json["broker"] is None

    async def resume() -> None:
        edit = {"revision": 1, "set": [{"path": f"topics[{at}].name", "value": "x"} for at in range(5_000)]}
        assert (await held.api("POST", "/api/held/1-2/resume", edit)).status == 200

    again()
    await is_short(look, unit)
    await is_short(resume, unit, again)


HOSTILE = {
    "nested lists": '{"revision": 1, "set": [{"path": "x", "value": [' + "[]," * 1_200_000 + "[]]}]}",
    "deep lists": '{"revision": 1, "set": [{"path": "x", "value": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}]}",
    "numbers": '{"revision": 1, "set": [{"path": "x", "value": [' + "0," * 1_900_000 + "0]}]}",
    "a long number": '{"revision": ' + "1" * 4_000_000 + "}",
    "unknown keys": "{" + ",".join(f'"{at}":1' for at in range(45_000)) + "}",
    "other lists": '{"revision": 1, "set": [' + "{}," * 9_000 + "{}]}",
    "quotes": '{"revision": 1, "bytes": "' + '\\"' * 2_000_000 + '"}',
    "backslashes": '{"revision": 1, "bytes": "' + "\\\\" * 2_000_000 + '"}',
    "commas in a text": '{"revision": 1, "bytes": "' + "," * 4_000_000 + '"}',
    "as many values as may be": '{"revision": 1, "set": [{"path": "topics", "value": [' + "0," * 49_000 + "0]}]}",
}


@IN_BOTH_UNITS
@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_body_is_read_in_short_steps(held: Held, name: str, unit: Unit) -> None:
    held.talk.client(request(METADATA, 8, 1, topics=[]))

    async def send() -> None:
        assert (await held.api("POST", "/api/held/1-1/preview", HOSTILE[name])).status == 422

    await is_short(send, unit)


@pytest.mark.measured
@pytest.mark.parametrize("name", [name for name, text in HOSTILE.items() if has_few_values(text.encode())])
async def test_hostile_body_is_parsed_fast(name: str) -> None:
    """The parser lets no other thread run."""
    data, found = HOSTILE[name].encode(), []
    for _ in range(TRIES):
        began = thread_time()
        with suppress(ValidationError):
            ResumeBody.model_validate_json(data)
        found.append(thread_time() - began)
    assert within(min(found), LONGEST["seconds"])


async def test_hostile_body_of_many_values_is_not_parsed() -> None:
    assert [name for name, text in HOSTILE.items() if not has_few_values(text.encode())] == [
        "nested lists", "deep lists", "numbers",
    ]  # fmt: skip


@pytest.mark.deep
@IN_BOTH_UNITS
async def test_list_and_release_of_many_held_frames_yield(
    held: Held, monkeypatch: pytest.MonkeyPatch, unit: Unit
) -> None:
    """There are more frames than one list returns."""
    running = held.api.running("hold")
    running.effect.hold = (running.effect.hold[0].__class__(600.0, "pass", 10_000),)
    beat = request(HEARTBEAT, 4, 1, group_id="g")
    talks = [held.connect(number) for number in range(1, 1501)]

    def hold() -> None:
        for talk in talks:
            talk.client(beat)

    async def look() -> None:
        assert len(await held.list()) == 1000
        assert len((await held.api.members[0].held_news(None)).added) == 1000

    async def resume() -> None:
        assert (await held.api("POST", "/api/held/resume", {})).json == {"resumed": 1500}

    async def release() -> None:
        assert (await held.api("POST", "/api/rules/hold/resume", "")).json == {"resumed": 1500}

    async def disable() -> None:
        assert (await held.api("POST", "/api/rules/hold/disable", "")).status == 200

    hold()
    await is_short(look, unit)
    made: list[str] = []
    show = held.api.members[0].held_frames.show
    monkeypatch.setattr(held.api.members[0].held_frames, "show", lambda one: made.append(one.id) or show(one))
    monkeypatch.setattr("kproxy.admin.held_frames.FRESH", 60.0)
    for _ in range(3):
        await look()
    assert len(made) <= 1000, "what was made for one who looks is told to others, too"
    await is_short(resume, unit, hold)
    hold()
    await is_short(release, unit, hold)
    hold()
    await is_short(disable, unit)
    assert not held.desk.held
