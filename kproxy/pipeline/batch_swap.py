"""Swap of several batches of a day for one: how a compaction becomes visible in one step.

Deleting the old and renaming the new are several steps, and a kill between them must neither lose rows nor show them
twice. So before the first of them a small file says what is going on; from then on readers judge by it: while the new
batch is not whole in its place they pass over it, and once it is they pass over the old ones. The file goes last.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import date

from kproxy.pipeline.files import Files

WORK = "_compact"
"""Folder in a table's folder; Spark and readers pass over it."""


@dataclass(frozen=True, slots=True)
class BatchSwap:
    """Swap on `day` of the batches `old` for the batch `new`, made of `files` (their names)."""

    day: date
    new: str
    old: tuple[str, ...]
    files: tuple[str, ...]

    def waiting(self, table_path: str) -> str:
        """Return the folder of the new batch until it is moved into its place."""
        return f"{table_path}/{WORK}/dt={self.day}"

    def place(self, table_path: str) -> str:
        """Return the folder to which the new batch belongs."""
        return f"{table_path}/dt={self.day}/batch={self.new}"

    def note(self, table_path: str) -> str:
        """Return the path of the file that records the swap."""
        return f"{table_path}/{WORK}/dt={self.day}.json"

    def is_in_place(self, files: Files, table_path: str) -> bool:
        """Return True if the new batch is whole in its place.

        On object storage a rename that was cut short leaves a part of it.
        """
        there = {entry.name for entry in files.entries(self.place(table_path))}
        return there.issuperset(self.files)

    def unseen(self, files: Files, table_path: str) -> list[str]:
        """Return the batches that readers must pass over now."""
        return list(self.old) if self.is_in_place(files, table_path) else [self.new]

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"day": self.day.isoformat()})


def from_json(text: str) -> BatchSwap:
    """Return the swap that `to_json` wrote."""
    fields = json.loads(text)
    return BatchSwap(date.fromisoformat(fields["day"]), fields["new"], tuple(fields["old"]), tuple(fields["files"]))


def swaps(files: Files, table_path: str) -> list[BatchSwap]:
    """Return the swaps of a table that have begun and not ended."""
    notes = (entry for entry in files.entries(f"{table_path}/{WORK}") if not entry.is_folder)
    return [from_json(files.read(note.path)) for note in notes if note.name.endswith(".json")]
