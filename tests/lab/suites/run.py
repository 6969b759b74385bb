"""Run other projects' own tests directly and through kproxy, compare them test by test, and write RESULTS.md.

    python -m tests.lab.suites.run FRANZ_GO=~/franz-go KAFKA_PYTHON=~/kafka-python [--ways direct,prefix] [--quick]

Strategy: nothing is fetched but what a project's own build asks its registry for; the folders of the sources are named.
Each suite has, on each way, a cluster of its own, one run after the other. What a run found is kept in a file of the
cache, so that suites can be run in parts; the page is what the files say. A test that passed directly and not through
kproxy is a difference; tests that fail directly, too, are told.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kproxy.base.errors import InternalError
from kproxy.base.jars import MissingTool, cache_folder
from kproxy.base.terminal import say
from tests.lab.matrix.in_front_of import WAYS, Passage, passage
from tests.lab.matrix.matrix import tool_path
from tests.lab.suites import findings, page
from tests.lab.suites.results import counted, differences
from tests.lab.suites.table import SUITES, Suite

NOT_COPIED = shutil.ignore_patterns(".git", ".v", "__pycache__", "node_modules")
SECONDS = 7200


def suite_and_folder(word: str) -> tuple[Suite, Path]:
    """Return the suite and the folder of a word `VARIABLE=FOLDER`. Raises InternalError for what is none."""
    variable, equals, place = word.partition("=")
    known = {suite.variable: suite for suite in SUITES.values()}
    suite, folder = known.get(variable), Path(place).expanduser()
    if suite is None or not equals:
        raise InternalError(f"{word}: expected one of {', '.join(f'{name}=FOLDER' for name in known)}")
    if not folder.is_dir():
        raise InternalError(
            f"{word}: there is no such folder; it is to have the sources of github.com/{suite.repository}"
        )
    if not (folder / suite.mark).is_file():
        raise InternalError(
            f"{word}: there is no {suite.mark} in it, as in the sources of github.com/{suite.repository}"
        )
    return suite, folder


def look_for_tools(suite: Suite) -> None:
    """Raise MissingTool if programs are missing that build the suite; all of them are named."""
    missing = {package: tool for tool, package in suite.tools if tool_path(tool) is None}
    if missing:
        raise MissingTool(
            f"no {' and no '.join(missing.values())} found, needed to build {suite.name} "
            f"(Debian: apt-get install {' '.join(missing)})"
        )


def built(suite: Suite, folder: Path) -> Path:
    """Copy the folder into the cache and build it there. Return the copy."""
    copy = cache_folder() / "suites" / suite.name
    shutil.copytree(folder, copy, dirs_exist_ok=True, ignore=NOT_COPIED, symlinks=True)
    suite.prepare(copy)
    return copy


def revision(folder: Path) -> str:
    """Return the commit and the day of the sources; `unknown` where git does not say."""
    command = ["git", "-C", str(folder), "log", "-1", "--format=%h, %cs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def run(suite: Suite, copy: Path, way: str, *, quick: bool, seconds: float) -> findings.Finding:
    """Run a suite on a way, and read its results. Raises InternalError if no test was run."""
    print(f"{suite.name}, {way}: …", flush=True)
    log = copy.with_name(f"{suite.name} {way}.log")
    began = time.monotonic()
    with suite.beside() as beside, passage(way, suite.brokers) as found:
        ended = execute(suite, copy, found, log, {**beside, **(suite.quick if quick else {})}, seconds)
    outcomes = suite.read(log.read_text(errors="replace"))
    if not outcomes:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise InternalError(f"{suite.name}, {way}: no test was run ({ended}); the end of {log}:\n{last}")
    took = time.monotonic() - began
    print(
        f"{suite.name}, {way}: passed, failed, skipped, unfinished: {list(counted(outcomes))}, {took:.0f} s", flush=True
    )
    return findings.Finding(outcomes, found.requests, found.troubles, took, ended)


def execute(suite: Suite, copy: Path, found: Passage, log: Path, more: dict[str, str], seconds: float) -> str:
    """Run the suite's command with its output in `log`. Return how it ended; after `seconds` it is killed."""

    def filled(text: str) -> str:
        return text.replace("{bootstrap}", found.bootstrap).replace("{copy}", str(copy))

    for name, text in suite.files.items():
        (copy / name).write_text(filled(text))
    program, *arguments = [filled(part) for part in suite.command]
    env = {**os.environ, **{name: filled(text) for name, text in suite.env.items()}, **more}
    with log.open("wb") as output:
        child = subprocess.Popen(
            [tool_path(program) or program, *arguments],
            cwd=copy, env=env, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            return f"exit code {child.wait(seconds)}"
        except subprocess.TimeoutExpired:
            return f"killed after {seconds:.0f} s"
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def compare(suite: Suite, ways: Sequence[str], kept: dict[str, findings.Finding]) -> int:
    """Print what differs on these ways and is not meant to. Return how many tests do."""
    total = 0
    for way in ways:
        if way != "direct" and "direct" in kept and way in kept:
            found = differences(kept["direct"].outcomes, kept[way].outcomes)
            different = {test: outcome for test, outcome in found.items() if not suite.why(test)}
            total += len(different)
            for test, outcome in different.items():
                say(f"{suite.name}, {way}: {test} passed directly, here {outcome}")
            for trouble in kept[way].troubles[:20]:
                say(f"{suite.name}, {way}: {trouble}")
    return total


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.suites.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("suites", nargs="*", metavar="VARIABLE=FOLDER", help=", ".join(
        f"{suite.variable} (github.com/{suite.repository})" for suite in SUITES.values()))  # fmt: skip
    parser.add_argument("--ways", default=",".join(WAYS), help=f"some of {','.join(WAYS)}")
    parser.add_argument("--quick", action="store_true", help="with settings for less work in each suite")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one suite on one way; then it is killed")
    parser.add_argument("--forget", action="store_true", help="forget first what was found before, of all suites")
    given = parser.parse_args(words)
    given.ways = given.ways.split(",")
    if unknown := [way for way in given.ways if way not in WAYS]:
        parser.error(f"--ways: there is no way {unknown[0]}, only {', '.join(WAYS)}")
    if not given.suites and not given.forget:
        parser.error("no suite is named: " + " ".join(f"{suite.variable}=FOLDER" for suite in SUITES.values()))
    return given


def main() -> int:
    """Run what is asked for and write the page. Return 1 if something differs, 2 if something could not be run."""
    given = arguments()
    if given.forget:
        findings.forget()
    try:
        chosen = [suite_and_folder(word) for word in given.suites]
        for suite, _ in chosen:
            look_for_tools(suite)
    except InternalError as error:
        say(error, err=True)
        return 2
    different, broken = 0, 0
    for suite, folder in chosen:
        try:
            copy = built(suite, folder)
            for way in given.ways:
                found = run(suite, copy, way, quick=given.quick, seconds=given.seconds)
                findings.keep(suite.name, way, found, revision(folder), quick=given.quick)
        except InternalError as error:
            say(error, err=True)
            broken += 1
        kept = findings.kept(suite.name)
        different += compare(suite, given.ways, {way: one.finding for way, one in kept.items()})
        page.write()
    print(f"{different} differences; tests/lab/suites/RESULTS.md is written")
    return 2 if broken else int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
