"""Who runs which tests: all are run once, what waits beside what computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.remote import Producer

from tests import order

ROOT = Path(__file__).parents[2]
COMPUTES = [f"tests/session/test_{name}.py::test_it[{number}]" for name in "abc" for number in range(4)]
WAITS = [f"tests/e2e/test_{name}.py::test_it[{number}]" for name in "abcd" for number in range(3)]


class Worker:
    """A worker that runs what it is given when the test says so."""

    def __init__(self, number: int, tests: Sequence[str]) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.tests = tests
        self.given: list[int] = []
        self.ran: list[str] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        assert not self.shutting_down
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    def step(self, scheduler: Any) -> bool:
        """Run the next test, if there is one; the last that it has only when it knows that no more come."""
        if not self.given or (len(self.given) == 1 and not self.shutting_down):
            return False
        index = self.given.pop(0)
        self.ran.append(self.tests[index])
        scheduler.mark_test_complete(self, index)
        return True


def run(tests: Sequence[str], workers: int, *, one_waits: bool, speeds: Sequence[int]) -> list[Worker]:
    """Run tests by so many workers, of which each runs `speeds` of them in turn; return these."""
    options = {"tx": ["popen"] * workers, "one_waits": one_waits, "loadscopereorder": False}
    config: Any = SimpleNamespace(
        getvalue=options.get, getoption=options.get, option=SimpleNamespace(**options), hook=SimpleNamespace()
    )
    scheduler: Any = order.ByUnit(config, Producer("order", enabled=False))
    nodes = [Worker(number, tests) for number in range(workers)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    done = [True]
    while any(done):
        done = [node.step(scheduler) for node, speed in zip(nodes, speeds, strict=True) for _ in range(speed)]
    return nodes


@pytest.mark.parametrize("speeds", [(1, 1, 1), (1, 1, 9), (9, 1, 1)])
def test_one_worker_only_waits(speeds: tuple[int, ...]) -> None:
    """However fast each is, every test runs once, and the last worker computes nothing; others wait at the end."""
    nodes = run([*COMPUTES, *WAITS], 3, one_waits=True, speeds=speeds)

    assert sorted(test for node in nodes for test in node.ran) == sorted([*COMPUTES, *WAITS])
    assert nodes[2].ran and {*nodes[2].ran} <= {*WAITS}
    assert all(node.shutting_down for node in nodes)
    if speeds[0] > 1:
        assert {*nodes[0].ran} & {*WAITS}


@pytest.mark.parametrize("tests", [COMPUTES, WAITS])
def test_where_all_is_of_one_kind(tests: list[str]) -> None:
    """Everything runs all the same."""
    nodes = run(tests, 3, one_waits=True, speeds=(1, 1, 1))

    assert sorted(test for node in nodes for test in node.ran) == sorted(tests)


def test_without_that_option_workers_take_what_comes() -> None:
    """In the order of the tests."""
    nodes = run([*COMPUTES, *WAITS], 3, one_waits=False, speeds=(1, 1, 1))

    assert {*nodes[2].ran} & {*COMPUTES}


def test_each_line_of_the_tables_is_about_something() -> None:
    """A file that was renamed would lose its place unseen."""
    paths = [path for paths in order.TOGETHER.values() for path in paths]
    for path in (*order.WAITING, *order.A_TEST, *paths, *(unit for unit in order.SECONDS if unit.endswith(".py"))):
        assert (ROOT / path).exists() or [*(ROOT / path).parent.glob(f"{Path(path).name}*")], path
