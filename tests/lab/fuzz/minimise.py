"""Takes what the fuzzer found into the corpus, after `run --found FOLDER`.

    python -m tests.lab.fuzz.minimise FOLDER [TARGET ...]

Strategy: the smallest inputs first; one stays if a line of kproxy follows a line that it never followed before. What is
in the corpus already comes before all others, so that it does not change without need.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import kproxy
from tests.lab.fuzz.corpus import TARGETS, keep, kept, target

HERE = str(Path(kproxy.__file__).parent)
MOST_BYTES = 24_000
"""Of the inputs of a target; all together they are to stay below 300 kB, in base64."""
MOST_TIME = 0.9
"""Seconds for all inputs of a target, without the tracing: the test run replays them every time."""
Step = tuple[str, int, int]


class Steps:
    """Which line followed which, in kproxy's own files."""

    def __init__(self) -> None:
        self.seen: set[Step] = set()

    def added(self, check: Callable[[bytes], None], data: bytes) -> int:
        """How many steps this input adds."""
        before = len(self.seen)
        sys.settrace(self.call)
        try:
            check(data)
        finally:
            sys.settrace(None)
        return len(self.seen) - before

    def call(self, frame: FrameType, event: str, given: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(HERE):
            return None
        last, add = frame.f_lineno, self.seen.add

        def line(frame: FrameType, event: str, given: Any) -> Any:
            nonlocal last
            add((file, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        return line


def minimise(name: str, folder: Path) -> tuple[int, int]:
    """(how many there were, how many are kept)."""
    check = target(name).check
    found = {path.read_bytes() for path in folder.iterdir()} if folder.exists() else set()
    old = kept(name)
    steps, chosen, size, used = Steps(), list[bytes](), 0, 0.0
    for data in [*old, *sorted(found - set(old), key=lambda one: (len(one), one))]:
        if used > MOST_TIME or size + len(data) > MOST_BYTES:
            continue
        if not steps.added(check, data):
            continue
        begun = time.process_time()
        check(data)  # everything that is made at first use is made by now
        used += time.process_time() - begun
        size += len(data)
        chosen.append(data)
    keep(name, chosen)
    return len(found), len(chosen)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="keep what adds to what is reached")
    parser.add_argument("folder", type=Path)
    parser.add_argument("targets", nargs="*", default=TARGETS)
    given = parser.parse_args(arguments)
    for name in given.targets:
        print(name, *minimise(name, given.folder / name), flush=True)


if __name__ == "__main__":
    main()
