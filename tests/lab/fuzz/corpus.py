"""Inputs worth keeping: a file for each target in `corpus/`, an input a line, in base64, and `findings.txt`.

They are what the fuzzer found on the way to more of the code, without those that add nothing (`minimise.py`). What once
was a finding stands in `findings.txt`, with its target in front.
"""

from __future__ import annotations

import importlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent / "corpus"
TARGETS = (
    "frames", "codec", "session", "watching", "documents", "rules", "records", "sasl", "captures", "events", "admin",
    "isolation", "verify", "spans", "edits", "masks", "avro", "conditions",
)  # fmt: skip
"""Modules in `targets/`. Each has `check(data)`, `seeds()` and `WORDS` that are worth putting into inputs."""


def target(name: str) -> ModuleType:
    """The module of that name."""
    return importlib.import_module(f".targets.{name}", __package__)


def kept(name: str) -> list[bytes]:
    """The inputs of a target."""
    path = FOLDER / f"{name}.txt"
    return [b64decode(line) for line in path.read_text().splitlines()] if path.exists() else []


def findings() -> list[tuple[str, bytes]]:
    """(target, input) of what went wrong once."""
    lines = (FOLDER / "findings.txt").read_text().splitlines()
    return [(name, b64decode(data)) for name, data in map(str.split, lines)]


def keep(name: str, inputs: Iterable[bytes]) -> None:
    """Write them, the shortest first."""
    lines = sorted({b64encode(data).decode() for data in inputs}, key=lambda line: (len(line), line))
    (FOLDER / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
