"""Which files a batch of the file stream is made of: Spark does not tell, but writes it down before the batch begins.

`offsets/<batch>` ends in the number up to which the source's own log counts for this batch; `sources/0/<number>` has
the files, and every so often `<number>.compact` has all of them up to there.
"""

from __future__ import annotations

import json

from kproxy.pipeline.files import Files


def files_of_batch(files: Files, checkpoint: str, number: int) -> list[str]:
    """The paths of the files of a batch; nothing if its source has no files."""
    upto = _counts_to(files, checkpoint, number)
    since = _counts_to(files, checkpoint, number - 1) if number else -1
    found = []
    for one in range(since + 1, upto + 1):
        log = f"{checkpoint}/sources/0/{one}"
        path = log if files.exists(log) else f"{log}.compact"
        entries = [json.loads(line) for line in files.read(path).splitlines()[1:]]  # after its version
        found += [str(entry["path"]) for entry in entries if entry["batchId"] == one]
    return found


def _counts_to(files: Files, checkpoint: str, number: int) -> int:
    """The last entry of the source's log that belongs to this batch or an earlier one; -1: there is no such log."""
    offset = json.loads(files.read(f"{checkpoint}/offsets/{number}").splitlines()[-1])
    return int(offset.get("logOffset", -1)) if isinstance(offset, dict) else -1
