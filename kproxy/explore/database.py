"""Findings on disk: kept for the next exploration of a test, as Hypothesis keeps its examples, and as rule files.

A folder per test has a file per finding. A file is written beside its place and then renamed, so that a reader sees it
whole or not at all, and two explorations in one folder do each other no harm: the later one of the same finding stays.
A disk that is full costs the exploration its memory, not its result: the reason is returned, and told.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from kproxy.errors import InputError

from .judge import FailureSignature
from .model import FaultPlan, dumps, loads
from .plan import plan_rules, plan_text, rule_bytes

FOLDER = Path(".kproxy/explored")
MOST_KEPT = 50
"""Findings kept of one test, the newest ones."""
MOST_PASSES = 3  # explorations in which an intermittent finding passes before it is removed
LARGEST = 1 << 20
"""Bytes of a file that is read: a plan has some hundred."""
LONGEST_STEM = 60
ENDING, UNFINISHED = ".json", ".part"
ABANDONED = 60.0
"""Seconds after which nobody writes a file any more that was begun."""


@dataclass(frozen=True, slots=True)
class KeptFinding:
    """Plan and failure of a finding, for the next exploration."""

    plan: FaultPlan
    signature: FailureSignature
    seen: float  # seconds since 1970
    rate: tuple[int, int] = (1, 1)  # failures and runs of the plan
    passes: int = 0  # explorations in a row in which it passed


class FindingStore:
    """Findings of one test, in a folder of its own below `root`."""

    def __init__(self, test: str, root: Path = FOLDER) -> None:
        self.root, self.folder = root, root / file_stem(test)

    def load(self) -> list[KeptFinding]:
        """Return what is kept, the newest first; files that cannot be read are passed over."""
        return sorted((one for _, one in self._files()), key=lambda one: -one.seen)[:MOST_KEPT]

    def _files(self) -> Iterator[tuple[Path, KeptFinding]]:
        with suppress(OSError):
            for path in sorted(self.folder.iterdir()):
                if path.suffix != ENDING:
                    continue
                with suppress(OSError, InputError, ValueError):  # another exploration may have let go of it
                    if path.stat().st_size <= LARGEST:
                        yield path, loads(path.read_bytes(), KeptFinding)

    def save(self, finding: KeptFinding) -> str:
        """Keep a finding in the place of others with its signature. Return why that cannot be, an empty text if it is
        kept."""
        name = sha256(dumps(finding.signature)).hexdigest()[:16] + ENDING
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._keep_out_of_git()
            write_whole(self.folder / name, dumps(finding))
        except OSError as error:
            return f"findings cannot be kept in {self.folder}: {error.strerror or error}"
        self._let_go()
        return ""

    def forget(self, signature: FailureSignature) -> None:
        """Let go of the findings with this signature, which do not fail any more."""
        for path, one in self._files():
            if one.signature == signature:
                with suppress(OSError):
                    path.unlink()

    def passed(self, finding: KeptFinding) -> None:
        """Record that the plan of a finding passed. A finding that failed in each run is removed, an intermittent one
        after MOST_PASSES explorations."""
        failed, of = finding.rate
        if failed == of or finding.passes + 1 >= MOST_PASSES:
            self.forget(finding.signature)
        else:
            self.save(replace(finding, passes=finding.passes + 1))

    def _let_go(self) -> None:
        """Let go of all but the newest findings, and of what an interrupted process had begun to write. What another
        exploration has written since it was looked is left alone."""
        found = sorted(self._files(), key=lambda one: -one[1].seen)
        for path, _ in found[MOST_KEPT:]:
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):
            newest = self.folder.stat().st_mtime
            for path in self.folder.glob(f"*{UNFINISHED}"):
                if path.stat().st_mtime < newest - ABANDONED:
                    path.unlink()

    def _keep_out_of_git(self) -> None:
        ignore = self.root / ".gitignore"
        if not ignore.exists():
            write_whole(ignore, b"*\n")


def save_rules(
    folder: Path, test: str, signature: FailureSignature, plan: FaultPlan, notes: Iterable[str], drip: bool = False
) -> Path:
    """Write the rules of a finding into a file, and return its path. `drip`: as of `plan_rules`. Raises OSError.

    The name has the test, the places and the faults in readable form, cut and simplified. A digest of the full test
    name, the signature and the rules makes names unique, and the same in each exploration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    identity = json.dumps([test, astuple(signature), plan_rules(plan, drip)], sort_keys=True)
    path = folder / f"{short_stem(test)}-{slug(plan_text(plan))}-{sha256(identity.encode()).hexdigest()[:8]}.yaml"
    write_whole(path, rule_bytes(plan, notes, drip))
    return path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody sees a part of it. Raises OSError, and leaves nothing behind then."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{token_hex(4)}{UNFINISHED}")
    try:
        part.write_bytes(data)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def file_stem(test: str) -> str:
    """Return the folder name of a test: readable, accepted by all systems, and unique."""
    return f"{short_stem(test)}-{sha256(test.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def short_stem(test: str) -> str:
    """Return the name of a test without its module as a part of a file name, parameters included."""
    name, bracket, parameters = test.partition("[")
    return slug(name.rsplit("::", 1)[-1] + bracket + parameters) or "test"


def slug(text: str) -> str:
    """Return a text as a part of a file name that all systems accept, of at most LONGEST_STEM characters."""
    return re.sub("[^A-Za-z0-9_]+", "-", text).strip("-")[:LONGEST_STEM].strip("-")
