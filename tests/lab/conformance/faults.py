"""The faults that each client meets: for every kind of fault at least one rule, at an exchange where it matters.

Strategy: the kinds come from the table of kinds. Of most of them it is said here at which exchange of the programs'
traffic they bring out what a client does; a kind that is not named has the rule of its own example, about the program's
topic and group. `TOPIC` and `GROUP` stand for the names of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from kproxy.rules.document.reference import sentence
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule

TOPIC, GROUP = "TOPIC", "GROUP"
NO_FAULT = "no-fault"
"""Name of the run that shows what a client does when nothing happens."""

AT_TOPIC, AT_GROUP = {"topic": TOPIC}, {"group": GROUP}
SECOND_WRITE = {"match": {"api": "Produce", **AT_TOPIC}, "when": {"nth": 2}}
SECOND_READ = {"match": {"api": "Fetch", **AT_TOPIC}, "when": {"nth": 2}}
SECOND_COMMIT = {"match": {"api": "OffsetCommit", **AT_GROUP}, "when": {"nth": 2}}
FIRST_JOIN = {"match": {"api": "JoinGroup", **AT_GROUP}, "when": {"nth": 1}}
AT_FIRST = {"match": AT_TOPIC, "when": {"first": 3}}

SENSIBLE: dict[str, dict[str, dict[str, Any]]] = {
    "add_node": {"": {"node": 9, "host": "127.0.0.1", "port": 1}},
    "bad_assignment": {
        "empty": {"match": AT_GROUP, "when": {"nth": 1}, "defect": "empty"},
        "negative": {"match": AT_GROUP, "when": {"nth": 1}, "defect": "negative"},
    },
    "bad_length": {
        "write-negative": {**SECOND_WRITE, "length": -5},
        "read-too-large": {**SECOND_READ, "length": 2147483647},
    },
    "bandwidth": {"": {"rate": "20kB/s"}},
    "blackhole": {"write": SECOND_WRITE, "read": SECOND_READ},
    "change_partitions": {"": {"match": AT_TOPIC, "offset_by": 3}},
    "corrupt": {
        "write-answer": {**SECOND_WRITE, "where": "body", "bits": 3, "seed": 7},
        "read-header": {**SECOND_READ, "where": "header", "seed": 7},
    },
    "corrupt_records": {"": {"match": AT_TOPIC, "when": {"nth": 2}, "at": "fetch", "bits": 3, "seed": 7}},
    "delay": {
        "write-2s": {**SECOND_WRITE, "delay": "2s", "at": "response"},
        "write-beyond-timeout": {**SECOND_WRITE, "delay": "8s", "at": "response"},
    },
    "disconnect": {
        "write-answer": {**SECOND_WRITE, "close_with": "rst", "at": "response"},
        "write-request": {**SECOND_WRITE, "close_with": "rst", "at": "request"},
        "read-answer": {**SECOND_READ, "close_with": "rst", "at": "response"},
        "commit-answer": {**SECOND_COMMIT, "close_with": "rst", "at": "response"},
        "join-answer": {**FIRST_JOIN, "close_with": "rst", "at": "response"},
    },
    "drop": {
        "write-answer": {**SECOND_WRITE, "what": "response"},
        "write-request": {**SECOND_WRITE, "what": "request"},
        "read-answer": {**SECOND_READ, "what": "response"},
        "commit-answer": {**SECOND_COMMIT, "what": "response", "connection": "close"},
    },
    "drop_commit": {"": {"match": {**AT_GROUP, **AT_TOPIC}}},
    "drop_records": {"": {"match": AT_TOPIC, "when": {"nth": 2}, "at": "fetch", "fraction": 0.5, "seed": 7}},
    "duplicate_records": {"": {"match": AT_TOPIC, "when": {"nth": 2}, "at": "fetch", "fraction": 1}},
    "duplicate_response": {"write": SECOND_WRITE, "read": SECOND_READ},
    "empty_fetch": {"": {"match": AT_TOPIC, "when": {"first": 5}}},
    "error": {
        "write-not-leader": {**SECOND_WRITE, "error": "NOT_LEADER_OR_FOLLOWER"},
        "write-timed-out-but-stored": {**SECOND_WRITE, "error": "REQUEST_TIMED_OUT", "at": "response"},
        "write-too-few-replicas": {**SECOND_WRITE, "error": "NOT_ENOUGH_REPLICAS"},
        "write-not-allowed": {**SECOND_WRITE, "error": "TOPIC_AUTHORIZATION_FAILED"},
        "write-too-large": {**SECOND_WRITE, "error": "MESSAGE_TOO_LARGE"},
        "read-out-of-range": {**SECOND_READ, "error": "OFFSET_OUT_OF_RANGE"},
        "read-not-leader": {**SECOND_READ, "error": "NOT_LEADER_OR_FOLLOWER"},
        "commit-rebalance": {**SECOND_COMMIT, "error": "REBALANCE_IN_PROGRESS"},
        "commit-loading": {**SECOND_COMMIT, "error": "COORDINATOR_LOAD_IN_PROGRESS"},
        "join-loading": {**FIRST_JOIN, "error": "COORDINATOR_LOAD_IN_PROGRESS"},
        "heartbeat-unknown-member": {
            "match": {"api": "Heartbeat", **AT_GROUP}, "when": {"nth": 1}, "error": "UNKNOWN_MEMBER_ID",
        },
        "find-coordinator": {"match": {"api": "FindCoordinator"}, "when": {"first": 3},
                             "error": "COORDINATOR_NOT_AVAILABLE"},
    },
    "hide_node": {"": {"node": 2, "when": {"first": 3}}},
    "hide_topic": {"": AT_FIRST},
    "intercept": {"": {**SECOND_WRITE, "hold_for": "3s"}},
    "malformed_batch": {
        "negative-count": {"match": AT_TOPIC, "when": {"nth": 2}, "defect": "negative_count"},
        "bad-magic": {"match": AT_TOPIC, "when": {"nth": 2}, "defect": "bad_magic"},
        "unknown-codec": {"match": AT_TOPIC, "when": {"nth": 2}, "defect": "unknown_codec"},
    },
    "move_coordinator": {"": {"match": AT_GROUP}},
    "move_leader": {"": {**AT_FIRST, "node": 3}},
    "no_controller": {"": {"when": {"first": 3}}},
    "no_leader": {"": {"match": {**AT_TOPIC, "partition": 0}, "when": {"first": 3}}},
    "omit_offset": {"": {"match": AT_GROUP}},
    "poison_records": {"": {"match": {**AT_TOPIC, "partition": 0}, "at": "fetch", "offsets": 1, "bytes": 3}},
    "preferred_replica": {"": {"match": AT_TOPIC, "when": {"first": 5}, "node": 9}},
    "rebalance": {"": {"match": AT_GROUP, "when": {"nth": 2}}},
    "recreate_topic": {"": {"match": AT_TOPIC, "when": {"nth": [2, 3]}}},
    "refuse": {"": {"match": {"node": 2}, "when": {"for": "15s"}}},
    "reorder_records": {"": {"match": AT_TOPIC, "at": "fetch"}},
    "reorder_responses": {"": {"match": {"api": "Produce"}}},
    "rewind_offset": {"": {"match": {**AT_GROUP, **AT_TOPIC}, "offset_by": -3}},
    "set": {"": {"match": {"api": "Metadata", **AT_TOPIC}, "fields": {"topics[].partitions[].leader_epoch": -1},
                 "at": "response"}},
    "set_record": {"": {"match": AT_TOPIC, "when": {"nth": 2}, "at": "fetch", "value": None}},
    "set_watermark": {"": {"match": AT_TOPIC, "when": {"first": 20}, "stuck": True}},
    "shift_epoch": {"": {"match": AT_TOPIC, "offset_by": -1}},
    "short_body": {"write": {**SECOND_WRITE, "fraction": 0.5}, "read": {**SECOND_READ, "fraction": 0.5}},
    "short_session": {"": {"lifetime": "10s"}},
    "slice": {"": {"bytes": 20, "every": "1ms"}},
    "stale_metadata": {"": {"age": "30s"}},
    "throttle_time": {"": {"match": {"api": ["Produce", "Fetch"]}, "when": {"first": 3}, "delay": "1s"}},
    "trailing_bytes": {"write": {**SECOND_WRITE, "bytes": 4}, "read": {**SECOND_READ, "bytes": 4}},
    "truncate": {"write": SECOND_WRITE, "read": SECOND_READ},
    "unknown_tag": {"": {"match": {"api": ["Metadata", "Fetch", "Produce"]}, "tag": 9999, "bytes": 8}},
    "wrong_address": {"": {"node": 2, "host": "127.0.0.1", "port": 1, "when": {"first": 3}}},
    "wrong_correlation_id": {"write": {**SECOND_WRITE, "offset": 7}, "read": {**SECOND_READ, "offset": 7}},
}  # fmt: skip
"""By kind and by the word for the exchange: fields of the rule."""


@dataclass(frozen=True)
class Fault:
    """Fault that a client meets: its name, its kind, what that does in a sentence, and the rule with placeholders."""

    name: str
    kind: str
    said: str
    fields: Mapping[str, Any]

    def rule(self, topic: str, group: str) -> dict[str, Any]:
        """Return the rule for a run with these names."""
        text = json.dumps({"name": self.name, "kind": self.kind, **self.fields})
        text = text.replace(json.dumps(TOPIC), json.dumps(topic)).replace(json.dumps(GROUP), json.dumps(group))
        made: dict[str, Any] = json.loads(text)
        return made

    def document(self) -> str:
        """Return the rule document in YAML, with the placeholders as names."""
        return yaml.safe_dump({"rules": [self.rule(TOPIC, GROUP)]}, sort_keys=False, width=110)


def general(text: str, topic: str, group: str) -> str:
    """Return a text of a run with the placeholders in place of its names, so that it is comparable with other runs."""
    return text.replace(topic, TOPIC).replace(group, GROUP)


def faults() -> dict[str, Fault]:
    """Return all faults by name, in the order of the kinds."""
    found = (fault for kind, model in KINDS.items() if is_fault(model) for fault in of_kind(kind))
    return {fault.name: fault for fault in found}


def is_fault(model: Any) -> bool:
    """Return True for a kind that makes something fail."""
    return issubclass(model, LiveRule) and model.family == "fault"


def of_kind(kind: str) -> Iterator[Fault]:
    """Yield the faults of a kind."""
    model = KINDS[kind]
    for word, fields in SENSIBLE.get(kind, {"": from_example(model.example)}).items():
        yield Fault(f"{kind}.{word}" if word else kind, kind, sentence(model), fields)


def from_example(example: str) -> dict[str, Any]:
    """Return the fields of a kind's example, about the run's topic and group in place of its own."""
    fields: dict[str, Any] = yaml.safe_load(example)[0]
    match = {"topic": TOPIC, "group": GROUP}
    kept = {name: match.get(name, value) for name, value in fields.pop("match", {}).items() if name in SELECTORS}
    rest = {name: value for name, value in fields.items() if name not in {"name", "kind"}}
    return {**({"match": kept} if kept else {}), **rest}


SELECTORS = ("api", "version", "topic", "group", "partition", "offset", "node")
"""Selectors of an example that mean something in a run; others are about clients that are not there."""
