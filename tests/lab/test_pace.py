"""Bounds of time in tests: for the machine as it is, and for async tests that would wait for ever."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.conftest import in_time
from tests.support import pace


def test_a_bound_holds_as_it_stands_where_the_machine_is_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "USUAL", 1e9)
    assert pace.slowness() == 1.0
    assert pace.within(0.05, 0.05)
    assert not pace.within(0.051, 0.05)


def test_a_slow_machine_has_more_and_at_most_four_times_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "USUAL", 1e-9)
    assert pace.within(0.2, 0.05)
    assert not pace.within(0.201, 0.05)


def test_what_is_within_its_bound_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "slowness", pytest.fail)
    assert pace.within(0.05, 0.05)


@pytest.mark.trio
async def test_an_async_test_that_waits_for_ever_ends_by_itself() -> None:
    with pytest.raises(trio.TooSlowError):
        await in_time(trio.sleep_forever, 0.01)()


CLOCKS = {
    "thread_time", "process_time", "perf_counter", "thread_time_ns", "process_time_ns", "perf_counter_ns", "Stopwatch",
}  # fmt: skip
MEASURING = (
    "tests/record/captures/golden/",
    "tests/protocol/golden/",
    "tests/lab/soak/",
    "tests/lab/bench/",
    "tests/lab/fuzz/",
    "tests/lab/scale/",
    "tests/lab/frame_costs.py",
    "tests/support/",
)
"""Modules of commands that measure, and helpers of `measured` tests. Their tests are searched."""
MARKED = {"measured", "IN_BOTH_UNITS", "BY_COST", "up_to"}
"""The marker, and decorators with it."""
LIMITS = {"timeout", "seconds"}
WALL_CLOCKS = {"monotonic", "time", "current_time"}
PATIENCE = 60
"""Seconds. A limit of a minute or more is not reached on a slow machine."""
WAITS = {"wait": 0, "join": 0, "result": 0, "fail_after": 0, "until": 1, "run": 9, "communicate": 9, "wait_until": 9}
"""Functions with a limit of time: its position among their arguments. 9: by name only."""
POLL = 2  # seconds; shorter waits poll in a loop, or expect that the limit ends them


def names_in(node: ast.AST) -> set[str]:
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return found | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def defined(node: ast.stmt) -> set[str]:
    """Return the names and attributes that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {one.attr for one in targets if isinstance(one, ast.Attribute)} | {
        one.id for one in targets if isinstance(one, ast.Name)
    }


def clock_readers(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the tests of a module that read a clock of CPU time, directly or through helpers, without the marker."""
    nodes = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    marked = [node for node in nodes if isinstance(node, ast.Assign) and "measured" in names_in(node)]
    marks = MARKED | {name for node in marked for name in defined(node)}
    clocks, before = set(CLOCKS), 0
    while before != len(clocks):
        before = len(clocks)
        for node in nodes:
            if names_in(node) & clocks and not names_in(node) & marks:
                clocks |= defined(node)
    for node in nodes:
        is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if is_test and names_in(node) & clocks and not names_in(node) & marks:
            yield node


def is_elapsed(node: ast.AST, elapsed: set[str]) -> bool:
    """Return True if an expression has a time that has passed. `elapsed`: names of variables and attributes with such a
    time."""
    differences = [one for one in ast.walk(node) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub)]
    calls = [one.left.func for one in differences if isinstance(one.left, ast.Call)]
    return any(names_in(one) & WALL_CLOCKS for one in calls) or bool(names_in(node) & elapsed)


def short_limits(tree: ast.Module) -> Iterator[ast.Assert]:
    """Yield assertions that less than a number of seconds has passed, if the number is below `PATIENCE`."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    elapsed = {name for node in nodes if is_elapsed(node.value, set()) for name in defined(node)}
    elapsed -= {"now", "until", "limit", "end"}  # points in time
    limits = {"PATIENCE": PATIENCE}
    for one in tree.body:
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant):
            limits |= dict.fromkeys(defined(one), one.value.value)
    methods = [one for node in tree.body if isinstance(node, ast.ClassDef) for one in node.body]
    functions = [one for one in (*tree.body, *methods) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        if names_in(function) & MARKED:
            continue
        for assertion in ast.walk(function):
            if isinstance(assertion, ast.Assert) and isinstance(assertion.test, ast.Compare):
                sides = [assertion.test.left, *assertion.test.comparators]
                for left, operator, right in zip(sides, assertion.test.ops, sides[1:], strict=False):
                    words = ast.unparse(right)  # `most` is the limit of `up_to`
                    limit = right.value if isinstance(right, ast.Constant) else limits.get(words, 0)
                    short = words != "most" and isinstance(limit, int | float) and limit < PATIENCE
                    if isinstance(operator, ast.Lt | ast.LtE) and is_elapsed(left, elapsed) and short:
                        yield assertion


def short_waits(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield calls with a limit below `PATIENCE`. Functions with a clock of the test are left out."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(one.arg in ("autojump_clock", "mock_clock") for one in function.args.args):
            continue
        for call in ast.walk(function):
            place = WAITS.get(defined_name(call.func)) if isinstance(call, ast.Call) else None
            if place is None or not isinstance(call, ast.Call):
                continue
            limits = [*call.args[place : place + 1], *(one.value for one in call.keywords if one.arg in LIMITS)]
            for limit in limits:
                value = limit.value if isinstance(limit, ast.Constant) else None
                if isinstance(value, int | float) and POLL <= value < PATIENCE:
                    yield call


def defined_name(function: ast.expr) -> str:
    """Return the last name of a function that is called."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


BAD = """
from time import monotonic, thread_time
class Slowest:
    def ask(self):
        began = monotonic()
        work()
        self.slowest = monotonic() - began
def spent():
    began = thread_time()
    return thread_time() - began
def test_one():
    assert spent() < 1
def test_two():
    assert Slowest().slowest < 5
def test_three():
    since = monotonic()
    took = monotonic() - since
    assert 1 < took < 20
def test_four():
    assert process.wait(20) == 0
    until(lambda: thing.done, seconds=10)
    with trio.fail_after(5):
        thread.join(timeout=30)
"""
GOOD = """
@pytest.mark.measured
def test_one():
    assert spent() < 1
def test_two():
    assert monotonic() - since >= 1
def test_three():
    assert monotonic() - since < 60
def test_four():
    now = monotonic() - 5
    assert thing.since <= now
def test_five():
    assert process.wait(60) == 0
    while not over.wait(0.05):
        thread.join()
async def test_six(autojump_clock):
    with trio.fail_after(5):
        await over.wait()
"""


def test_time_limits_in_a_test_are_found() -> None:
    bad, good = ast.parse(BAD), ast.parse(GOOD)
    assert [one.name for one in clock_readers(bad) if isinstance(one, ast.FunctionDef)] == ["test_one"]
    assert [ast.unparse(one.test) for one in short_limits(bad)] == ["Slowest().slowest < 5", "1 < took < 20"]
    assert sorted(ast.unparse(one) for one in short_waits(bad)) == [
        "process.wait(20)", "thread.join(timeout=30)", "trio.fail_after(5)", "until(lambda: thing.done, seconds=10)",
    ]  # fmt: skip
    assert [*clock_readers(good), *short_limits(good), *short_waits(good)] == []


def test_no_test_of_make_test_compares_time() -> None:
    root = Path(__file__).parents[2]
    found = []
    for path in sorted((root / "tests").rglob("*.py")):
        name = str(path.relative_to(root))
        helper = name.startswith(MEASURING) and not path.name.startswith("test_")
        if not helper and path != Path(__file__):
            text = path.read_text()
            tree = ast.parse(text)
            nodes: list[ast.stmt | ast.expr] = [*short_waits(tree)]
            if any(word in text for word in CLOCKS):
                nodes += clock_readers(tree)
            if any(word in text for word in WALL_CLOCKS - {"time"}) or "time()" in text:
                nodes += short_limits(tree)
            found += [f"{name}:{node.lineno}" for node in nodes]
    assert found == []
