"""The garbage collector: spared while kproxy starts, and left alone in a process that is not kproxy's own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kproxy.app.garbage import FEW

pytestmark = pytest.mark.process
STATES = """
import gc, json
def state(): return gc.get_threshold()[0], gc.get_freeze_count() > 10_000
states = [state()]
import {module}
states.append(state())
from kproxy.app import garbage
garbage.freeze()
print(json.dumps([*states, state()]))
"""


def states(module: str) -> list[list[object]]:
    """[threshold, whether much is frozen] of a new process: before it imports `module`, after it, once it serves."""
    words = [sys.executable, "-c", STATES.format(module=module)]
    found: list[list[object]] = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return found


def test_a_process_of_kproxys_own_collects_little_until_it_serves() -> None:
    usual, imported, serving = states("kproxy.app.start")

    assert imported == [FEW, False]
    assert serving == [usual[0], True]


def test_a_process_in_which_kproxy_is_tested_with_is_left_as_it_is() -> None:
    usual, imported, serving = states("kproxy.testing.embedded")

    assert usual == imported == serving


MOST = """
import gc, json
import kproxy.app.start
from kproxy.app import garbage
garbage.freeze()
most = full = 0
def look(phase, info):
    global most, full
    if phase == "start" and info["generation"] == garbage.OLDEST:
        most, full = max(most, len(gc.get_objects())), full + 1
gc.callbacks.insert(0, look)
kept = [[number, [number]] for number in range(1_000_000)]
print(json.dumps([most, full, len(kept)]))
"""

CYCLES = """
import gc, json, weakref
import kproxy.app.start
from kproxy.app import garbage
class Thing: pass
garbage.freeze()
def cycle():
    one, other = Thing(), Thing()
    one.other, other.one = other, one
    return one
kept = cycle()
seen = weakref.ref(kept)
gc.collect()
del kept
gc.collect()
before = seen() is None
swept = garbage.sweep()
more = [[] for _ in range(garbage.SWEPT_AT_ONCE)]
gc.collect()
garbage.Heap.alive = gc.get_freeze_count()
print(json.dumps([before, swept, seen() is None, gc.get_freeze_count() > 10_000, garbage.sweep()]))
"""


def said(script: str) -> list[float]:
    """What a new process prints."""
    words = [sys.executable, "-c", script]
    found: list[float] = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return found


def test_full_collection_looks_at_new_objects_only() -> None:
    """Two million lists, as a few long frames make when they are decoded: full collections took 0.3 s."""
    most, full, made = said(MOST)

    assert made == 1_000_000
    assert full >= 2
    assert most <= 250_000


def test_cycles_that_outlived_a_collection_are_found_by_a_sweep() -> None:
    """And there is none where it would take long, while there is not much more than the last time."""
    before, swept, gone, frozen, again = said(CYCLES)

    assert not before
    assert swept
    assert gone
    assert frozen
    assert not again
