"""What rules cost: one exchange of a small Produce in the session alone, without sockets, with and without them.

Sets that do not match stand for a rule file in which most rules are about others: their number must not matter.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts
from kproxy.rules.rule_set import RuleSet
from kproxy.session.commands import Send
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import request, response
from tests.lab.bench.rows import Rows

CASE = "rules: an exchange in the session"
NONE = "no rule"
QUOTA = "quota, not reached"
WAITS, FIRES = "error that waits for its turn", "error in the broker's place"
MANY = (1, 10, 100, 1000)
HERE = Facts("", "", "")
TOPIC = [{"name": "orders", "partition_data": [{"index": 0, "records": b"r" * 200}]}]
RENAME = {"name": "names", "kind": "rename_topic", "topics": {"orders": "prod.orders"}}
ASK = request(0, 9, 1, acks=1, topic_data=TOPIC)
ROOM = 4096
"""Bytes of the buffer, many more than a frame here, as in `net`."""

Rule = Mapping[str, Any]


def error(number: int, **match: Any) -> Rule:
    return {"name": f"rule {number}", "kind": "error", "match": match, "error": 29}


def rule_sets() -> dict[str, Sequence[Rule]]:
    """By what they are called in the report."""
    found: dict[str, Sequence[Rule]] = {NONE: ()}
    for many in MANY:
        found[f"other API × {many}"] = [error(number, api="Fetch", topic=f"t{number}") for number in range(many)]
    for many in MANY:
        found[f"other topic × {many}"] = [error(number, api="Produce", topic=f"t{number}") for number in range(many)]
    for many in MANY:
        found[f"other client id × {many}"] = [
            {"name": f"rule {number}", "kind": "delay", "match": {"client_id": f"c{number}"}, "delay": "1s"}
            for number in range(many)
        ]
    for many in MANY[:3]:
        found[f"other glob × {many}"] = [error(number, api="Produce", topic=f"t{number}-*") for number in range(many)]
    mine = error(0, api="Produce", topic="orders")
    found["rename, matching"] = [RENAME]
    found[QUOTA] = [{"name": "q", "kind": "quota", "per": ["client_id"], "produce": "100GB/s"}]
    found[WAITS] = [{**mine, "when": {"nth": 1_000_000_000}}]
    found[FIRES] = [mine]
    found["error after the work"] = [{**mine, "at": "response"}]
    return found


class Exchange:
    """A session under some rules, fed with the same exchange over and over."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = parse_rules(json.dumps({"rules": rules})) if rules else RuleSet()
        bound = self.rules.bind(HERE)
        plan = Plan(ConnectionSettings.of(bound, advertise=False), bound.live)
        self.session = Session(plan, ClusterState(), HERE, 1, bound)
        self.now = 0.0
        name = "prod.orders" if RENAME in rules else "orders"
        say = response(0, 9, 1, responses=[{"name": name, "partition_responses": [{"index": 0, "base_offset": 7}]}])
        self.ask, self.say = ASK, say
        self.buffer = bytearray(ROOM)
        self.view = memoryview(self.buffer)

    def run(self, times: int) -> float:
        """CPU microseconds of one."""
        began = time.process_time()
        for _ in range(times):
            self.now += 0.001
            self.feed(self.session.from_client, self.ask)
            if self.session.inflight.fifo and self.session.inflight.fifo[0][1].key >= 0:
                self.feed(self.session.from_broker, self.say)
        return (time.process_time() - began) / times * 1e6

    def feed(self, take: Any, data: bytes) -> None:
        self.buffer[: len(data)] = data  # as a read does: the session may have changed what was there
        take(self.view, len(data), self.now)
        commands = self.session.commands
        for command in commands:
            if isinstance(command, Send) and command.token:
                self.session.sent(command.token, self.now)
        commands.clear()


def measure(rows: Rows, *, rounds: int, times: int) -> None:
    """All sets take turns in each round."""
    exchanges = {name: Exchange(rules) for name, rules in rule_sets().items()}
    for exchange in exchanges.values():
        exchange.run(50)
    names = list(exchanges)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            rows.add(CASE, name, {"us": exchanges[name].run(times)})
    print(f"rules: {rounds} rounds", file=sys.stderr)
