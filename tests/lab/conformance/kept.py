"""What runs came to, kept in files of the cache, so that the whole can be run in parts and goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from kproxy.base.jars import cache_folder
from tests.lab.conformance.cell import Run
from tests.lab.conformance.faults import NO_FAULT
from tests.lab.matrix.matrix import CLIENTS

WITHOUT = ("java-old", "kafka-streams", "connect")
"""Programs of the matrix that have no traffic of this kind: the first is Java's again, the others write for others."""
NAMES = tuple(name for name in CLIENTS if name not in WITHOUT)


def folder() -> Path:
    """Return where runs are kept."""
    return cache_folder() / "conformance" / "runs"


def keep(run: Run) -> None:
    """Keep what a run came to, in place of an earlier one of the same client and fault."""
    folder().mkdir(parents=True, exist_ok=True)
    file = folder() / f"{run.client} {run.fault}.json"
    whole = file.with_suffix(".part")
    whole.write_text(json.dumps(asdict(run)))
    whole.replace(file)


def kept() -> dict[tuple[str, str], Run]:
    """Return all runs that are kept, by client and fault."""
    runs = (Run(**json.loads(file.read_text())) for file in folder().glob("*.json"))
    return {(run.client, run.fault): run for run in runs}


def wanted(faults: Iterable[str], words: str) -> list[tuple[str, str]]:
    """Return the pairs of a client and a fault that have all of these words in them, clients in the order of the matrix
    and the run without a fault first. A word `client/fault` stands for that pair alone."""
    pairs = [(client, fault) for client in NAMES for fault in (NO_FAULT, *faults)]
    return [pair for pair in pairs if all(fits(pair, word) for word in words.split())]


def fits(pair: tuple[str, str], word: str) -> bool:
    """Return True if a word is in one of the two names, or is both of them."""
    client, slash, fault = word.partition("/")
    return pair == (client, fault) if slash else word == pair[0] or word in pair[1]
