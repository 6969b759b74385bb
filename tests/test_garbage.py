"""The garbage collector: spared while kproxy starts, and left alone in a process that is not kproxy's own."""

from __future__ import annotations

import json
import subprocess
import sys

from kproxy.garbage import FEW

STATES = """
import gc, json
def state(): return gc.get_threshold()[0], gc.get_freeze_count() > 10_000
states = [state()]
import {module}
states.append(state())
from kproxy import garbage
garbage.settle()
print(json.dumps([*states, state()]))
"""


def states(module: str) -> list[list[object]]:
    """[threshold, whether much is frozen] of a new process: before it imports `module`, after it, once it serves."""
    words = [sys.executable, "-c", STATES.format(module=module)]
    found: list[list[object]] = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return found


def test_a_process_of_kproxys_own_collects_little_until_it_serves() -> None:
    usual, imported, serving = states("kproxy.own_process")

    assert imported == [FEW, False]
    assert serving == [usual[0], True]


def test_a_process_in_which_kproxy_is_tested_with_is_left_as_it_is() -> None:
    usual, imported, serving = states("kproxy.testing.embedded")

    assert usual == imported == serving
