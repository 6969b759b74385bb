"""Config documents of any length: checking one, and finding the steps to it, takes linear work and memory.

The admin API accepts 4 MB, and no other task runs during a check.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kproxy.app.config.changes import changed_places, steps
from kproxy.app.config.document import Config, config_from
from kproxy.rules.values.source import Source, json_source
from kproxy.runtime.config.ports import overlaps
from tests.support.stretches import BY_COST, Cost

SMALL, LARGE = 200, 1600
RATIO = {"lines": 1.5, "seconds": 3.5}
"""Factor over its share that the larger config may cost."""
LEAST = {"lines": 10_000, "seconds": 0.02}
"""Minimum cost of a small config: a lower cost is mostly overhead."""
Parts = dict[str, Any]
Make = Callable[[int], Parts]
ONE = {"a": {"bootstrap": ["b:1"]}}
TLS = {"cert": "cert.pem"}


def many(each: Callable[[int], Parts], clusters: Parts | Callable[[int], Parts] = ONE, **more: Any) -> Make:
    """A config of so many listeners."""
    return lambda count: {
        "clusters": clusters(count) if callable(clusters) else clusters,
        "listeners": [{"name": f"l{at}", "bind": f"h:{at + 1}", "cluster": "a", **each(at)} for at in range(count)],
        **{name: value(count) if callable(value) else value for name, value in more.items()},
    }


def clusters(count: int) -> Parts:
    return {f"c{at}": {"bootstrap": [f"b:{at + 1}"]} for at in range(count)}


def circles(count: int) -> Parts:
    return {f"c{at}": {"bootstrap": [f"h:{at + 1}"]} for at in range(count)}


RIGHT: dict[str, Make] = {
    "ports": many(lambda at: {}),
    "hosts": many(lambda at: {"bind": f"h{at}:9"}),
    "hosts and ranges": many(lambda at: {"bind": f"h{at}:9", "advertise": {"ports": "10-60000"}}),
    "ranges": many(lambda at: {"bind": f"h:{at * 20 + 1}", "advertise": {"ports": f"{at * 20 + 2}-{at * 20 + 20}"}}),
    "clusters": many(lambda at: {"cluster": f"c{at}"}, clusters),
    "marks": many(lambda at: {"cluster": f"c{at}", "transparent": True}, clusters),
    "one port": many(lambda at: {"bind": "h:9", "tls": TLS, "hosts": [f"{at}.test"]}),
    "nodes": many(lambda at: {"bind": f"h{at}:9", "advertise": {"nodes": {1: f"x:{at + 10}", 2: f"x:{at + 11}"}}}),
}
WRONG: dict[str, Make] = {
    "the same port": many(lambda at: {"bind": "h:9"}),
    "the same port of all hosts": many(lambda at: {"bind": "0.0.0.0:9"}),
    "the same ranges": many(lambda at: {"advertise": {"ports": "3000-60000"}}),
    "the same port, and the same names": many(lambda at: {"bind": "h:9", "tls": TLS, "hosts": ["a.test"]}),
    "one port, and proxies": many(lambda at: {
        "bind": "h:9", "tls": TLS, "hosts": [f"{at}.test"], **({"proxy_protocol": {"from": "::1"}} if at else {})
    }),
    "the same name": many(lambda at: {"name": "x"}),
    "clusters that are not there": many(lambda at: {"cluster": f"d{at}"}, clusters),
    "clusters nearly right": many(lambda at: {"cluster": f"c-{at}"}, clusters),
    "circles": many(lambda at: {}, circles),
    "telemetry of nobody": many(
        lambda at: {}, telemetry=lambda count: {"listeners": [f"m{at}" for at in range(count)]}
    ),
}  # fmt: skip
CASES = {**RIGHT, **WRONG}
MANY_WORDS = ("the same port", "clusters that are not there", "telemetry of nobody")


def read(parts: Parts, folder: Path) -> tuple[Source, Config | None]:
    source = json_source("c.json", json.dumps(parts).encode())
    return source, config_from(source, folder)


def spent(parts: Parts, folder: Path, cost: Cost) -> float:
    """Return the cost of checking a config, and of finding the steps to it and back."""
    _, before = read({"clusters": ONE, "listeners": [{"name": "x", "bind": "h:0", "cluster": "a"}]}, folder)
    assert before is not None
    source = json_source("c.json", json.dumps(parts).encode())

    def check() -> None:
        config = config_from(source, folder)
        if config is not None:
            for one, other in ((before, config), (config, before), (config, config)):
                steps(one, other)
                changed_places(one, other)
            config.places()

    return cost.of(check)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cert.pem").write_text("")
    return tmp_path


@BY_COST
@pytest.mark.parametrize("case", CASES)
def test_config_is_checked_in_linear_work(case: str, folder: Path, cost: Cost) -> None:
    """The better of two attempts: the first one fills caches."""
    make = CASES[case]
    small = max(min(spent(make(SMALL), folder, cost) for _ in range(2)), LEAST[cost.name])

    assert any(spent(make(LARGE), folder, cost) < small * LARGE / SMALL * RATIO[cost.name] for _ in range(2))


def memory(parts: Parts, folder: Path) -> int:
    """Bytes of memory at most that it takes to read a config of mistakes, of which a hundred are told."""
    tracemalloc.start()
    try:
        source, config = read(parts, folder)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        assert config is None
        assert len(source.lines()) == 100


@pytest.mark.parametrize("case", MANY_WORDS)
def test_the_memory_grows_with_the_length(case: str, folder: Path) -> None:
    """A list of thousands of valid words stands in none of thousands of messages."""
    small, large = (memory(WRONG[case](count), folder) for count in (SMALL, LARGE))

    assert large < 2 * small * LARGE / SMALL


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_right_has_no_mistake(case: str, folder: Path) -> None:
    source, config = read(RIGHT[case](SMALL), folder)

    assert source.lines() == []
    assert config is not None


# ---- who has a port


HOSTS = ("h", "10.0.0.1", "0.0.0.0", "::", "::1")


def pairs(seed: int) -> list[tuple[str, int, int, bool]]:
    """Listeners: host, own port, last port of a range behind it (0: none), and if they have names."""
    draw = Random(seed)
    return [
        (draw.choice(HOSTS), draw.randint(1, 12), draw.choice((0, 0, draw.randint(2, 14))), draw.random() < 0.4)
        for _ in range(draw.randint(2, 5))
    ]


def have_the_same(one: str, other: str) -> bool:
    """Return True if a port of one host is one of the other host, too."""
    if one == other or "::" in (one, other):
        return True
    return "0.0.0.0" in (one, other) and ":" not in one + other


@pytest.mark.parametrize("seed", range(300))
def test_each_claim_is_told_that_overlaps_with_an_earlier_one(seed: int) -> None:
    """As if each was compared with each; the first listener with a mistake is the same at least."""
    drawn = pairs(seed)
    listeners = []
    for at, (host, port, last, named) in enumerate(drawn):
        bind = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        more: Parts = {"hosts": [f"{at}.test"]} if named else {}
        if last > port:
            more["advertise"] = {"ports": f"{port + 1}-{last}"}
        listeners.append({"name": f"l{at}", "bind": bind, "cluster": "a", **more})
    wrong = set()
    for at, (host, port, last, named) in enumerate(drawn):
        for other_host, other, other_last, other_named in drawn[:at]:
            shares = named and other_named and (host, port) == (other_host, other)
            if not have_the_same(host, other_host):
                continue
            own, others = set(range(port, max(last, port) + 1)), set(range(other, max(other_last, other) + 1))
            if (own & others) - ({port} if shares else set()):
                wrong.add(at)
    told = {where[1] for where, _ in overlaps(enumerate(listeners), None)}

    assert told <= wrong
    assert bool(told) == bool(wrong)
    assert min(told, default=0) == min(wrong, default=0)
