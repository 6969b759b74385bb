"""Settings for small data and queries side by side, without Spark."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kproxy.lake.spark import AT_ONCE, FOR_SMALL_DATA, SMALL, FunctionLookup, side_by_side, suited_to

USUAL = {name: usual for name, (usual, _) in FOR_SMALL_DATA.items()}
FOR_FEW = {name: small for name, (_, small) in FOR_SMALL_DATA.items()}


class Conf(dict[str, str]):
    """Settings of a session."""

    set, get = dict.__setitem__, dict.__getitem__


class Session:
    """Session that has settings only."""

    def __init__(self, conf: dict[str, str]) -> None:
        self.conf: Any = Conf(conf)


@pytest.mark.parametrize(("size", "settings"), [(0, FOR_FEW), (SMALL - 1, FOR_FEW), (SMALL, USUAL), (1 << 40, USUAL)])
def test_small_data_has_settings_of_its_own(size: int, settings: dict[str, str]) -> None:
    """While the block runs, also if it fails."""
    session: Any = Session(USUAL)

    def fail() -> None:
        with suited_to(session, size):
            assert session.conf == settings
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert session.conf == USUAL


@pytest.mark.parametrize("name", USUAL)
def test_settings_that_somebody_has_chosen_stay(name: str) -> None:
    """Such as those of --conf."""
    session: Any = Session({**USUAL, name: "somebody's"})

    with suited_to(session, 0):
        assert session.conf == {**FOR_FEW, name: "somebody's"}
    assert session.conf == {**USUAL, name: "somebody's"}


def test_results_have_the_order_of_the_work() -> None:
    """Though the first ends last."""
    ended = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert ended.wait(60)
        elif number == 9:
            ended.set()
        return number * number

    assert side_by_side(work, range(10)) == [number * number for number in range(10)]


def test_what_fails_is_raised_and_the_rest_is_left() -> None:
    """What has begun is waited for: nothing goes on behind the error."""
    begun, go_on = [], threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise LookupError("broken")
        go_on.wait(0.2)

    with pytest.raises(LookupError, match="broken"):
        side_by_side(work, range(100))
    assert len(begun) <= 2 * AT_ONCE
    assert not [one for one in threading.enumerate() if "ThreadPool" in one.name]


def test_each_function_is_looked_up_once() -> None:
    """However often it is used; what is not there is an error each time."""
    asked = []

    class Functions:
        def __getattr__(self, name: str) -> str:
            asked.append(name)
            if name == "nothing":
                raise AttributeError(name)
            return f"function {name}"

    functions = FunctionLookup(Functions())
    assert [functions.sum, functions.sum, functions.max] == ["function sum", "function sum", "function max"]
    for _ in range(2):
        with pytest.raises(AttributeError):
            _ = functions.nothing
    assert asked == ["sum", "max", "nothing", "nothing"]
