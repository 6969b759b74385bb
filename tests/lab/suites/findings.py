"""What the suites were found to do, kept in files of the cache: one of each suite and way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kproxy.base.jars import cache_folder


@dataclass(frozen=True)
class Finding:
    """What one run of a suite came to: outcomes by test, requests through kproxy, troubles beside it, seconds, end."""

    outcomes: dict[str, str]
    requests: float = 0
    troubles: list[str] = field(default_factory=list)
    seconds: float = 0
    ended: str = ""


@dataclass(frozen=True)
class KeptFinding:
    """A finding with the sources that it is about, the day, and whether the suite was run with less work."""

    finding: Finding
    revision: str
    day: str
    quick: bool


def folder() -> Path:
    """Return where findings are kept."""
    return cache_folder() / "suites" / "found"


def keep(suite: str, way: str, finding: Finding, revision: str, *, quick: bool) -> None:
    """Keep what a run came to, in place of an earlier one."""
    folder().mkdir(parents=True, exist_ok=True)
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    kept_finding = {"finding": asdict(finding), "revision": revision, "day": day, "quick": quick}
    (folder() / f"{suite} {way}.json").write_text(json.dumps(kept_finding))


def kept(suite: str) -> dict[str, KeptFinding]:
    """Return what is kept of a suite, by way."""
    found = {}
    for file in sorted(folder().glob(f"{suite} *.json")):
        said = json.loads(file.read_text())
        way = file.stem.rpartition(" ")[2]
        found[way] = KeptFinding(Finding(**said["finding"]), said["revision"], said["day"], said["quick"])
    return found


def forget() -> None:
    """Remove all that is kept."""
    for file in folder().glob("*.json"):
        file.unlink()
