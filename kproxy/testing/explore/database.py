"""Findings on disk: a folder for the next exploration of each test, rule files, and the baseline of known failures."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Literal

import msgspec

from kproxy.base.errors import InputError

from .model import FaultPlan, dumps, loads
from .plan import plan_rules, plan_text, rule_bytes
from .result import FINDINGS, Exploration, FailureSignature

FOLDER = Path(".kproxy/explored")
MOST_KEPT = 50  # newest findings of one test
MOST_PASSES = 3  # explorations in which an intermittent finding passes before it is removed
LARGEST = 1 << 20  # bytes of a file that is read
LONGEST_STEM = 60
ENDING, UNFINISHED = ".json", ".part"
ABANDONED = 60.0  # seconds after which an unfinished file is removed


@dataclass(frozen=True, slots=True)
class KeptFinding:
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
        """Return the kept findings, the newest first, without unreadable files."""
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
        """Replace the finding with the same signature. Return the reason of a failure, or an empty text."""
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
        """Remove all but the newest findings, and unfinished files of interrupted processes."""
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
    folder: Path,
    test: str,
    signature: FailureSignature,
    plan: FaultPlan,
    notes: Iterable[str],
    one_batch_per_fetch: bool = False,
) -> Path:
    """Write the rule file of a finding and return its path. The readable name ends in a digest of the test name,
    signature and rules, so names are unique, and the same in each exploration. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    identity = json.dumps([test, astuple(signature), plan_rules(plan, one_batch_per_fetch)], sort_keys=True)
    path = folder / f"{short_stem(test)}-{slug(plan_text(plan))}-{sha256(identity.encode()).hexdigest()[:8]}.yaml"
    write_whole(path, rule_bytes(plan, notes, one_batch_per_fetch))
    return path


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file in one step. Raises OSError."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{token_hex(4)}{UNFINISHED}")
    try:
        part.write_bytes(data)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def file_stem(test: str) -> str:
    return f"{short_stem(test)}-{sha256(test.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def short_stem(test: str) -> str:
    name, bracket, parameters = test.partition("[")
    return slug(name.rsplit("::", 1)[-1] + bracket + parameters) or "test"


def slug(text: str) -> str:
    """Return a text as a part of a file name that all systems accept."""
    return re.sub("[^A-Za-z0-9_]+", "-", text).strip("-")[:LONGEST_STEM].strip("-")


SCHEMA: Literal["kproxy.explore.baseline/1"] = "kproxy.explore.baseline/1"
LARGEST_BASELINE = 16 << 20  # bytes


@dataclass(frozen=True, slots=True)
class KnownFailure:
    test: str
    signature: FailureSignature
    plan: str


@dataclass(frozen=True, slots=True)
class BaselineFile:
    schema: Literal["kproxy.explore.baseline/1"]
    failures: tuple[KnownFailure, ...]


class Baseline:
    """Known failures by test: a JSON file, sorted so that diffs are short."""

    def __init__(self, failures: Iterable[KnownFailure] = ()) -> None:
        self.failures = {(one.test, one.signature): one for one in failures}

    @classmethod
    def read(cls, path: Path | None, update: bool = False) -> Baseline:
        """Return the baseline in a file, or an empty one: for None, or if `update` will write a missing file. Raises
        InputError."""
        if path is None or (update and not path.exists()):
            return cls()
        try:
            with path.open("rb") as file:
                data = file.read(LARGEST_BASELINE + 1)
        except FileNotFoundError:
            raise InputError(f"baseline: expected an existing file, or the option update, got {path}") from None
        except OSError as error:
            raise InputError(f"{path}: the baseline cannot be read: {error.strerror or error}") from None
        try:
            failures = msgspec.convert(json.loads(data), BaselineFile).failures
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise InputError(f"{path}: expected a baseline of explorations: {error}") from None
        if wrong := {one.signature.outcome for one in failures} - FINDINGS:
            raise InputError(f"{path}: expected outcome {', '.join(sorted(FINDINGS))}, got {', '.join(sorted(wrong))}")
        return cls(failures)

    def known(self, test: str) -> frozenset[FailureSignature]:
        return frozenset(signature for name, signature in self.failures if name == test)

    def updated(self, results: Iterable[Exploration]) -> Baseline:
        """Return a baseline with the current findings of the tests that were explored to their end."""
        explored = [result for result in results if result.was_explored]
        names = {result.test for result in explored}
        kept = [one for (test, _), one in self.failures.items() if test not in names]
        found = [
            KnownFailure(result.test, finding.signature, plan_text(finding.smallest))
            for result in explored
            for finding in result.findings
            if not finding.is_of_test
        ]
        return Baseline([*kept, *found])

    def text(self) -> str:
        """Return the file's content. Empty fields of signatures are left out."""
        failures = [asdict(one) for one in self.failures.values()]
        for one in failures:
            one["signature"] = {name: value for name, value in one["signature"].items() if value}
        failures.sort(key=lambda one: json.dumps(one, sort_keys=True))
        return json.dumps({"schema": SCHEMA, "failures": failures}, indent=1, sort_keys=True) + "\n"
