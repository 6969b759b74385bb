"""Exchanges as witnesses of facts, and the facts that any exchange or connection tells.

A fact that is *ok* was confirmed; *failed*: it was certainly not done; *open*: it may have been done, then or later.
Facts are never changed once they are made, so that several views of a record share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Result = Literal["ok", "failed", "open"]
ConnectionKey = tuple[str, int, int]
"""Address of a client, number of the connection, and number of the recording among several."""


class PartitionPlace(NamedTuple):
    """Topic by the name it has in the record (its id as text where no name is known), and partition."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


@dataclass(slots=True, eq=False)
class Witness:
    """Exchange as a finding names it.

    `number`: of the exchange in its record, from 1 on; 0 for a request of kproxy's own. `began`, `ended`: seconds since
    1970 of the request's first and the response's last byte; `ended` is None without a response. `clock`: number of the
    recording with this clock, 0 for one clock. `altered`: the bytes at the client and at the broker differ. `differs`:
    partitions with other batches or offsets at the broker. `made_by_kproxy`: a rule made the response. `server`: its
    address, if its cluster is unknown.
    """

    number: int
    began: float
    ended: float | None
    connection: ConnectionKey
    client: str
    node: int | None
    api: str
    version: int
    rules: tuple[str, ...] = ()
    made_by_kproxy: bool = False
    software: str = ""
    altered: bool = False
    differs: frozenset[str] = frozenset()
    correlation_id: int = 0
    server: str = ""
    clock: int = 0

    def before(self, other: Witness) -> bool:
        """Return True if this exchange was over when the other began: nothing else is known to be before."""
        return self.ended is not None and self.ended < other.began

    def may_be_elsewhere(self, other: Witness) -> bool:
        """Return True unless both exchanges were certainly with the same node."""
        return self.node is None or self.node != other.node

    @property
    def client_key(self) -> tuple[str, str]:
        """Return the address, without its port, and the client id, which a client's connections have in common.

        Many processes may share both, so they do not identify a client, and prove nothing.
        """
        return self.connection[0].rpartition(":")[0], self.client


@dataclass(slots=True, eq=False)
class Fact:
    """Fact that an exchange tells, its `witness`."""

    witness: Witness

    @property
    def weight(self) -> int:
        """Return how many small things it is made of, by which what is held is bounded."""
        return 1


@dataclass(slots=True, eq=False)
class PartitionFact(Fact):
    """Fact about one partition."""

    place: PartitionPlace


@dataclass(slots=True, eq=False)
class RequestFact(Fact):
    """Request that passed, whatever it was about."""

    key: int


@dataclass(slots=True, eq=False)
class VersionsFact(Fact):
    """Versions of APIs that a broker offered on this connection, (first, last) by key."""

    offered: dict[int, tuple[int, int]]

    @property
    def weight(self) -> int:
        return 1 + len(self.offered) // 8


@dataclass(slots=True, eq=False)
class SessionFact(Fact):
    """Fetch session that a request opens or continues, and what the answer says of it."""

    session: int
    epoch: int
    error: int | None
    given: int
