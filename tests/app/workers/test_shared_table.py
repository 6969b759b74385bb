"""Numbers that processes have in common: none is counted twice or lost, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kproxy.app.workers.shared_table import WAYS, SharedTable
from kproxy.base.errors import InternalError
from kproxy.rules.trigger import Trigger, When

HAMMER = Path(__file__).with_name("hammer.py")
OWNER = b"ownerone"


class Hammer:
    """One such process."""

    def __init__(self, table: SharedTable) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HAMMER), str(table.fd)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            pass_fds=[table.fd], text=True,
        )  # fmt: skip
        assert self.answer(raw=True) == "ready\n"

    def ask(self, owner: bytes, said: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"owner": owner.hex(), **said}) + "\n")
        self.process.stdin.flush()

    def answer(self, raw: bool = False) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return line if raw else json.loads(line)

    def end(self) -> None:
        with self.process:
            self.process.kill()


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedTable]:
    table = SharedTable.create(groups=64)
    yield table
    table.close()


@pytest.fixture(scope="module")
def hammers(shared: SharedTable) -> Iterator[list[Hammer]]:
    """Three processes, for all tests here."""
    with ExitStack() as stack:
        made = [Hammer(shared) for _ in range(3)]
        for one in made:
            stack.callback(one.end)
        yield made


@pytest.fixture
def table() -> Iterator[SharedTable]:
    made = SharedTable.create(groups=1)
    yield made
    made.close()


def all_of(hammers: list[Hammer], owner: bytes, said: dict[str, Any]) -> list[Any]:
    """They all do it, at the same time."""
    for one in hammers:
        one.ask(owner, said)
    return [one.answer() for one in hammers]


@pytest.mark.parametrize(
    "when",
    [
        {"nth": [3, 900]},
        {"first": 100},
        {"every": 7},
        {"times": 10, "every": 2},
        {"once": True},
        {"after": 200, "first": 50},
        {"probability": 0.3},
        {"count_scope": "client", "first": 20},
    ],
    ids=str,
)
def test_three_processes_fire_as_often_as_one(
    hammers: list[Hammer], when: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """With all of them counting at once, exactly as many requests are acted on as in one process."""
    owner = (abs(hash(request.node.name)) | 1).to_bytes(8, "little")
    alone = Trigger(When.model_validate(when), "7", 0.0)
    expected = sum(alone.fires(1.0, 1, "c") for _ in range(3 * 400))

    assert sum(all_of(hammers, owner, {"when": when, "calls": 400, "client": "c", "seed": "7"})) == expected


def test_a_quota_of_all_is_one_quota(hammers: list[Hammer]) -> None:
    """Three processes together let through what one would: what was in the bucket, and what has come since."""
    for number in range(5):  # less is measured again: the machine may have stood still for a while
        began = time.monotonic()
        owner = f"quota{number:03}".encode()
        total = sum(all_of(hammers, owner, {"rate": 10_000, "size": 1000, "seconds": 0.8, "amount": 50}))
        took = min(time.monotonic() - began, 0.8)
        assert total <= 1000 + took * 10_000 + 150
        if total >= 0.95 * (1000 + 0.8 * 10_000) - 150:
            return
    pytest.fail(f"{total} in {took:g} s")


def test_who_is_killed_while_it_has_the_numbers_out_blocks_nobody(shared: SharedTable) -> None:
    """The others go on at once, with the numbers as they were."""
    cells = shared.cells(OWNER, "some")
    cells.take(1.0)
    cells.put(5.0, 6.0)
    killed = Hammer(shared)
    try:
        killed.ask(OWNER, {"lock": "some"})
        assert killed.answer() == "locked"
    finally:
        killed.end()

    assert cells.take(2.0) == (5.0, 6.0, 0.0, 0.0, 0.0, 0.0)
    cells.put(5.0, 7.0)


def test_a_full_group_gives_up_what_was_used_longest_ago(table: SharedTable) -> None:
    """What was used since stays, and so does what a rule counts as a whole."""
    whole = table.cells(OWNER, None)
    assert whole.take(0.0) is None
    whole.put(1.0)
    made = [table.cells(OWNER, str(number)) for number in range(WAYS)]
    for number, cells in enumerate(made[:-1]):
        assert cells.take(float(number)) is None
        cells.put(float(number))
    used_again = made[0].take(50.0)
    made[0].put(100.0)
    made[-1].take(60.0)
    made[-1].put(7.0)

    assert used_again is not None
    assert made[1].take(70.0) is None
    made[1].put(1.0)
    for cells, expected in ((whole, 1.0), (made[0], 100.0), (made[-1], 7.0)):
        numbers = cells.take(80.0)
        assert numbers is not None
        assert numbers[0] == expected
        cells.put(*numbers)
    assert table.used() == WAYS


def test_a_full_group_keeps_what_would_be_lost(table: SharedTable) -> None:
    """A debt that was made first stays; what is full by then goes, though it was used last."""
    debt = table.cells(OWNER, "debt")
    assert debt.take(0.0) is None
    debt.put(-500.0, 0.0, until=500.0)
    for number in range(3 * WAYS):
        cells = table.cells(OWNER, str(number))
        assert cells.take(1.0 + number) is None
        cells.put(0.0, 0.0, until=2.0 + number)

    kept = debt.take(100.0)
    debt.put()
    assert kept is not None and kept[0] == -500.0


def test_a_rule_that_leaves_frees_its_slots(table: SharedTable) -> None:
    """And nobody else's."""
    for owner in (OWNER, b"ownertwo"):
        for what in (None, "a", "b"):
            cells = table.cells(owner, what)
            cells.take(1.0)
            cells.put(1.0)
    table.forget({OWNER})

    assert table.used() == 3
    left = table.cells(b"ownertwo", "a")
    assert left.take(2.0) is not None
    left.put(1.0)


def test_numbers_follow_their_key_into_another_slot(table: SharedTable) -> None:
    """Whoever keeps the cells of a key finds them, though they had to go and came back elsewhere."""
    first, second = table.cells(OWNER, "a"), table.cells(OWNER, "b")
    for cells in (first, second):
        cells.take(1.0)
        cells.put(1.0)
    table.forget({OWNER})
    again = table.cells(OWNER, "b")
    again.take(2.0)
    again.put(42.0)

    numbers = second.take(3.0)
    assert numbers is not None
    assert numbers[0] == 42.0


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    """The descriptor that was inherited is another."""
    with (
        (tmp_path / "file").open("wb+") as file,
        pytest.raises(InternalError, match=r"expected a shared table at descriptor \d+, got 0 bytes"),
    ):
        SharedTable.open(file.fileno())


def test_it_is_closed_in_other_programs(table: SharedTable) -> None:
    """Unless it is passed on."""
    assert not os.get_inheritable(table.fd)
