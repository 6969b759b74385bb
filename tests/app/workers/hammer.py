"""A process of its own that counts and charges in a shared table as fast as it can, told what to do line by line.

{"when": {...}, "calls": 500, "client": "a", "seed": "7"}    → how often it fired
{"rate": 100, "seconds": 0.5, "amount": 10}                  → how much it has let through
{"lock": "key"}                                              → takes the numbers of a key and keeps them
"""

from __future__ import annotations

import json
import sys
from time import monotonic, sleep
from typing import Any

from kproxy.app.workers.shared_table import SharedTable
from kproxy.rules.bucket import SharedBucket
from kproxy.rules.shared_numbers import SharedNumbers
from kproxy.rules.trigger import SharedTrigger, When


def fired(common: SharedNumbers, said: dict[str, Any]) -> int:
    trigger = SharedTrigger(When.model_validate(said["when"]), said.get("seed", ""), 0.0, common)
    return sum(trigger.fires(monotonic(), 1, said.get("client")) for _ in range(said["calls"]))


def let_through(common: SharedNumbers, said: dict[str, Any]) -> float:
    """Charges like a connection that waits for as long as it is told."""
    bucket, total = SharedBucket(said["rate"], said["size"], monotonic(), common.cells("bucket")), 0.0
    end = monotonic() + said["seconds"]
    while (now := monotonic()) < end:
        wait = bucket.charge(said["amount"], now)
        if now + wait >= end:
            break
        total += said["amount"]
        sleep(wait)
    return total


def main() -> None:
    table = SharedTable.open(int(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        said = json.loads(line)
        common = SharedNumbers(table.cells, bytes.fromhex(said["owner"]))
        if "when" in said:
            answer: object = fired(common, said)
        elif "rate" in said:
            answer = let_through(common, said)
        else:
            common.cells(said["lock"]).take(monotonic())
            answer = "locked"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
