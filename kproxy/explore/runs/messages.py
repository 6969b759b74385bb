"""Messages between the explorer, the process that forks, and its children: JSON behind four bytes of its length."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from kproxy.errors import InternalError
from kproxy.explore.model import ExploredRun, FaultPlan, dumps

MOST_MESSAGE = 64 << 20
"""Bytes of one message; an answer of a child, which has half of it at most, is in one as base64."""
HEAD = 4
NO_FAULTS = FaultPlan()


@dataclass(frozen=True, slots=True)
class RunJob:
    """Job of a child: a run under a plan, or to delete the topics that runs have left.

    `prefix` stands in front of all names of the run on a cluster that runs share; to delete, it is what those of all
    runs begin with, `below` is the lowest number of a run that may still be under way, and `shared` the cluster.
    """

    number: int
    limit: float
    plan: FaultPlan = NO_FAULTS
    prefix: str = ""
    task: Literal["run", "delete topics"] = "run"
    below: int = 0
    shared: str = ""


@dataclass(frozen=True, slots=True)
class ServerOrder:
    """Order to the process that forks: begin a job, or end those with these numbers."""

    job: RunJob | None = None
    end: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ChildAnswer:
    """Answer of a child about its run. `shared`: the address of the cluster, if others use it, too. `unreachable`: no
    broker of it answers."""

    run: ExploredRun
    shared: str = ""
    unreachable: bool = False


@dataclass(frozen=True, slots=True)
class EndedChild:
    """Child that has ended, as the process that forks has seen it.

    answer: its bytes, empty if it gave none · code: its exit code, below zero for a signal · late: it was killed since
    its time was over · flooded: it was killed since it said more than anybody wants to know · stacks: those that it
    wrote when its time was over · output: the last lines of what it printed · problem: why there was no child at all.
    """

    number: int
    answer: bytes = b""
    code: int = 0
    seconds: float = 0.0
    late: bool = False
    flooded: bool = False
    stacks: str = ""
    output: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """Report of the process that forks: it is ready, or cannot be and why, or a child has ended. `threads`: how many it
    has besides its own when it is ready."""

    ended: EndedChild | None = None
    problem: str = ""
    threads: int = 0


def packed(message: Any) -> bytes:
    """Return a message as it travels, with its length in front."""
    data = dumps(message)
    return len(data).to_bytes(HEAD, "big") + data


class MessageBuffer:
    """Buffer of bytes that came from a stream, which gives out whole messages."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that these bytes complete. Raises InternalError for a length that cannot be one."""
        self.data += data
        at = 0
        while len(self.data) - at >= HEAD:
            size = int.from_bytes(self.data[at : at + HEAD], "big")
            if size > MOST_MESSAGE:
                raise InternalError(f"a message of {size} bytes is announced, the longest has {MOST_MESSAGE}")
            if len(self.data) - at - HEAD < size:
                break
            yield bytes(self.data[at + HEAD : at + HEAD + size])
            at += HEAD + size
        del self.data[:at]


def code_text(code: int) -> str:
    """Return an exit code in words, with the name of a signal that has ended the process."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the bytes to a descriptor that blocks."""
    with memoryview(data) as view:
        at = 0
        while at < len(view):
            at += os.write(descriptor, view[at:])
