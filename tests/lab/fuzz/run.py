"""`make fuzz`: every target in turn, for so many seconds each; the first finding of each is shown with its input.

    python -m tests.lab.fuzz.run [--seconds N] [--found FOLDER] [TARGET ...]

A finding comes as a Python traceback and the input in base64. Put it into corpus/findings.txt, behind the name of
its target, and mend the code: tests/lab/fuzz/test_corpus.py fails until then. FOLDER keeps what was found on the way,
for `minimise.py`. The machine has to have room: with a load many times its cores a slow input looks like a hanging
one.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path

from tests.lab.fuzz.corpus import TARGETS, kept, target

LONGEST = 2048
"""Bytes of an input. What needs more to go wrong is a matter of limits, which have their own tests."""
TIMEOUT = 90
"""Seconds of one input, with counters on every branch, on a busy machine."""
MEMORY = 2048
"""MiB of the process."""


def prepare(name: str, folder: Path) -> Path:
    """The kept inputs and the seeds as files; the dictionary's path."""
    for data in (*kept(name), *target(name).seeds()):
        (folder / sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
    words = folder.parent / f"{name}.dict"
    quoted = ("".join(f"\\x{byte:02x}" for byte in word) for word in target(name).WORDS if word)
    words.write_text("".join(f'"{word}"\n' for word in quoted))
    return words


def run(name: str, seconds: int, folder: Path) -> bool:
    """Whether it went without a finding."""
    folder.mkdir(parents=True, exist_ok=True)
    words = prepare(name, folder)
    artefact = folder.parent / f"{name}.finding"
    artefact.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "tests.lab.fuzz.one", name, str(folder), f"-max_total_time={seconds}", f"-dict={words}",
        f"-timeout={TIMEOUT}", f"-rss_limit_mb={MEMORY}", f"-max_len={LONGEST}", f"-exact_artifact_path={artefact}",
        "-print_final_stats=1", "-verbosity=1",
    ]  # fmt: skip
    begun, used = time.monotonic(), cpu()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    stats = dict(line[6:].split(":", 1) for line in done.stderr.splitlines() if line.startswith("stat::"))
    count = stats.get("number_of_executed_units", "?").strip()
    ran = f"{count} inputs in {time.monotonic() - begun:.0f} s, {cpu() - used:.0f} s of CPU"
    if done.returncode == 0:
        print(f"{name}: {ran}, {len(list(folder.iterdir()))} worth keeping, no finding", flush=True)
        return True
    said = [line for line in done.stderr.splitlines() if not line.startswith(("#", "stat::", "INFO:", "0x"))]
    print(f"{name}: a finding after {ran}\n{done.stdout[-3000:]}", *said[-15:], sep="\n")
    if artefact.exists():
        print(f"input: {b64encode(artefact.read_bytes()).decode()}", flush=True)
    return False


def cpu() -> float:
    """Seconds of CPU that ended children have used."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="fuzz every target in turn")
    parser.add_argument("targets", nargs="*", default=TARGETS)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--found", type=Path, default=None)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kproxy-fuzz-") as temporary:
        folder = given.found or Path(temporary)
        results = [run(name, given.seconds, folder / name) for name in given.targets]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
