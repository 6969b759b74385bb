"""Print what an exchange costs a session: Python calls, files of the code, and CPU time in ratio to a plain exchange.

    python -m tests.lab.frame_costs

A session is driven by hand with small Produce requests and their answers in a buffer like a driver's, without sockets.
Cases are measured by turns, and the least of many rounds counts, so that other work on the machine does little harm.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import kproxy
from kproxy.base.cooperative import EVERY, YieldState
from kproxy.protocol.records import Record, encode_batch
from kproxy.session.commands import BROKER, CLIENT, Send
from kproxy.tools.rehearse.dialogue import Dialogue, request, response

PACKAGE = f"{Path(kproxy.__file__).parent}/"
PRODUCE, METADATA = 0, 3
BUFFER = 1 << 16
ROUNDS, EXCHANGES = 60, 200
RECORDS = encode_batch([Record(0, 0, b"key", b"v" * 90)])

FIRES = "{name: always, kind: error, match: {topic: orders, api: Produce}, error: NOT_LEADER_OR_FOLLOWER}"
WAITS = FIRES.replace("}, error", "}, when: {nth: 1000000000}, error")
OTHER = FIRES.replace("orders", "secret")


@dataclass
class Case:
    """Traffic of one kind under some rules, and the costs of an exchange after `warm` other ones."""

    name: str
    rules: str
    goal: str = ""
    warm: int = 50
    seconds: float = float("inf")
    calls: int = 0
    files: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Start the session, and let it meet the traffic."""
        self.talk = Dialogue(f"rules: [{self.rules}]" if self.rules else "")
        data = [{"name": "orders", "partition_data": [{"index": 0, "records": RECORDS}]}]
        self.asked = request(PRODUCE, 9, 5, acks=-1, timeout_ms=30000, topic_data=data)
        done = [{"name": "orders", "partition_responses": [{"index": 0, "base_offset": 7}]}]
        self.answered = response(PRODUCE, 9, 5, responses=done)
        self.come = bytearray(self.asked).ljust(BUFFER, b"\0")
        self.go = bytearray(self.answered).ljust(BUFFER, b"\0")
        for _ in range(self.warm):
            self.exchange()

    def exchange(self) -> None:
        """Pass one request and, if the session forwarded it, the broker's answer."""
        session = self.talk.session
        forwarded = session.from_client(self.come, len(self.asked), 100.0) + self.carry_out(BROKER)
        if forwarded:
            session.from_broker(self.go, len(self.answered), 100.0)
            self.carry_out(CLIENT)

    def carry_out(self, target: int) -> int:
        """Report sends as done, as a driver does, and return the bytes that went to the side `target` by them."""
        session, length = self.talk.session, 0
        for command in session.commands:
            if isinstance(command, Send):
                length += len(command.data) if command.side == target else 0
                if command.token:
                    session.sent(command.token, 100.0)
        session.commands.clear()
        return length

    def trace(self) -> None:
        """Count the calls of Python functions of kproxy in one exchange, and the files they stand in."""

        def count(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
                self.calls += 1
                self.files.add(frame.f_code.co_filename.removeprefix(PACKAGE))

        self.calls = 0
        hook, YieldState.hook = YieldState.hook, None  # a reactor of an earlier test may have set it
        YieldState.left = EVERY
        sys.setprofile(count)
        try:
            self.exchange()
        finally:
            sys.setprofile(None)
            YieldState.hook = hook
        self.files.discard("tools/rehearse/dialogue.py")

    def measure(self) -> None:
        """Time a round of exchanges; the least of all rounds is kept."""
        begun = time.thread_time()
        for _ in range(EXCHANGES):
            self.exchange()
        self.seconds = min(self.seconds, (time.thread_time() - begun) / EXCHANGES)


def measured() -> list[Case]:
    """Return the cases, measured; the first is the plain exchange."""
    cases = [
        Case("plain", ""),
        Case("rule about another topic", OTHER, "1.5 x"),
        Case("error that waits for its turn", WAITS, "30 calls, 8 files, 3 x"),
        Case("error that fires", FIRES, "20 x"),
    ]
    for case in cases:
        case.trace()
    for _ in range(ROUNDS):
        for case in cases:
            case.measure()
    return cases


def main() -> None:
    """Print a table of the cases."""
    cases = measured()
    print(f"{'small Produce':32}{'calls':>6}{'files':>6}{'us':>8}{'ratio':>7}  goal")
    for warm, goal in enumerate(("25 files", "12 files")):
        case = Case(f"error that fires, frame {warm + 1}", FIRES, goal, warm)
        case.trace()
        print(f"{case.name:32}{case.calls:6}{len(case.files):6}{'':15}  {goal}")
    for case in cases:
        ratio = case.seconds / cases[0].seconds
        print(f"{case.name:32}{case.calls:6}{len(case.files):6}{case.seconds * 1e6:8.2f}{ratio:7.1f}  {case.goal}")


if __name__ == "__main__":
    main()
