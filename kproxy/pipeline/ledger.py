"""Ledger of the batches that a job has finished, whole, and of what was in them.

A batch's entry is a small JSON file, written last: a batch without one is not whole, and is done again. Bronze's ledger
is silver's list of work; silver's says what `compact` may merge.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kproxy.pipeline.lake import Lake


@dataclass(frozen=True, slots=True)
class BatchLedger:
    """Ledger of the finished batches of one job."""

    lake: Lake
    job: str

    def batches(self) -> list[str]:
        """Return the names of the finished batches, in order."""
        entries = self.lake.files.entries(self._folder)
        return [entry.name.removesuffix(".json") for entry in entries if entry.name.endswith(".json")]

    def has(self, batch: str) -> bool:
        return self.lake.files.exists(self._path(batch))

    def entry(self, batch: str) -> dict[str, Any]:
        """Return what was noted about a batch."""
        noted: dict[str, Any] = json.loads(self.lake.files.read(self._path(batch)))
        return noted

    def add(self, batch: str, noted: dict[str, Any]) -> None:
        """Record that the batch is finished, with notes about it."""
        self.lake.files.write(self._path(batch), json.dumps(noted, default=str))

    def remove(self, batch: str) -> None:
        """Forget a batch, of which nothing is left."""
        self.lake.files.delete(self._path(batch))

    @property
    def _folder(self) -> str:
        return self.lake.checkpoint(f"batches/{self.job}")

    def _path(self, batch: str) -> str:
        return f"{self._folder}/{batch}.json"
