"""What kproxy's own rules do to the traffic meanwhile: only what a bad network or a busy broker does, too."""

from __future__ import annotations

from typing import Any

Rule = dict[str, Any]

FAULTS: list[Rule] = [
    {"name": "half of all is late", "kind": "delay", "when": {"probability": 0.5},
     "delay": {"uniform": ["1ms", "150ms"]}},
    {"name": "answers are late", "kind": "delay", "match": {"api": ["Produce", "Fetch"]}, "at": "response",
     "delay": "80ms"},
    {"name": "no leader now and then", "kind": "error", "match": {"api": ["Produce", "Fetch"]},
     "when": {"probability": 0.05}, "error": "NOT_LEADER_OR_FOLLOWER"},
    {"name": "stored, but nobody hears of it", "kind": "disconnect", "match": {"api": "Produce"},
     "when": {"probability": 0.05}, "close_with": "rst", "at": "response"},
    {"name": "connections end", "kind": "disconnect", "when": {"probability": 0.01}},
    {"name": "coordinators are loading", "kind": "error",
     "match": {"api": ["OffsetCommit", "TxnOffsetCommit", "AddOffsetsToTxn", "EndTxn"]},
     "when": {"probability": 0.2}, "error": "COORDINATOR_LOAD_IN_PROGRESS"},
    {"name": "groups are to gather again", "kind": "rebalance", "when": {"probability": 0.05}},
    {"name": "small pieces", "kind": "slice", "bytes": "700B", "every": "1ms"},
    {"name": "answers of brokers are lost", "kind": "drop", "match": {"api": ["Produce", "EndTxn", "OffsetCommit"]},
     "when": {"probability": 0.02}, "connection": "close"},
]  # fmt: skip
