"""Readiness to serve clients: what is missing for all of them, and, as probes find, for those of each cluster.

Strategy. Each cluster is asked ApiVersions now and then, on a connection that is kept for that, logged in where kproxy
does that, so that a cluster pays one small request each time. When nothing comes on it, another broker is tried before
the cluster counts as lost: connections end for many reasons, and one broker is not the cluster.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from kproxy.runtime.upstreams.own_connection import own_connection, send_request
from kproxy.runtime.upstreams.upstream import Upstream

LOOK = 0.25
"""Seconds between two looks while it is not ready, so that it is said when it is true."""
LOOK_AGAIN = 1.0
"""Seconds between two looks afterwards."""

AGAIN = 1.0
"""Seconds to the next question while there is no answer."""
CONFIRM = 2.0
"""Seconds to the next question after an answer."""
PATIENCE = 3.5
"""Seconds that an answer may take, and after it was not there in time a new connection with its answer: a cluster that
is lost is noticed within CONFIRM + 2 × PATIENCE, that is nine."""
QUESTION = bytes.fromhex("0000001000120000000000010006") + b"kproxy"
"""ApiVersions v0, the one request that every broker since 0.10 answers, before authentication, too (KIP-35)."""
MEANT = (35, 0)
"""Error codes that are an answer: a version not supported is one as well."""
LONGEST = 1 << 20
"""Bytes of an answer."""

DRAINING = "nothing, it is draining"
GOING_TO_END = "nothing, it is going to end"
"""Reasons for not being ready after a signal to end. The log has lines of its own for them."""

ClusterNeed = Literal["any", "all"]
"""Clusters that have to answer."""


class Readiness(msgspec.Struct, frozen=True):
    """Missing conditions: `own` whatever clients want, `clusters` by cluster; none: its brokers answer."""

    own: Sequence[str]
    clusters: Mapping[str, Sequence[str]]

    def waiting_for(self, need: ClusterNeed) -> list[str]:
        """Return what is missing of the whole; empty when it is ready."""
        dead = [reason for reasons in self.clusters.values() for reason in reasons]
        return [*self.own, *(dead if need == "all" or all(self.clusters.values()) else ())]

    def flags(self, need: ClusterNeed) -> tuple[bool, dict[str, bool]]:
        """Return whether the whole is ready, and each cluster, as metrics tell it."""
        return not self.waiting_for(need), {name: not self.of(name) for name in self.clusters}

    def of(self, cluster: str) -> list[str]:
        """Return what is missing for the clients of that cluster. Raises KeyError when there is none."""
        return [*self.own, *self.clusters[cluster]]


def together(own: Sequence[str], clusters: Sequence[str], workers: Mapping[int, Readiness | str]) -> Readiness:
    """Combine the readiness of several processes; a worker that gives none is a reason of its own."""
    missing: list[str] = [*own]
    by_cluster: dict[str, list[str]] = {name: [] for name in clusters}
    for index, readiness in workers.items():
        if isinstance(readiness, str):
            missing.append(f"worker {index}: {readiness}")
            continue
        missing += [f"worker {index}: {reason}" for reason in readiness.own]
        for name, reasons in readiness.clusters.items():
            by_cluster[name] += [f"worker {index}: {reason}" for reason in reasons]
    return Readiness(missing, by_cluster)


async def tell(ask: Callable[[], Awaitable[list[str]]], log: FilteringBoundLogger, fields: Mapping[str, Any]) -> None:
    """Log when kproxy becomes ready, and when it is not any more, until cancelled."""
    before: list[str] | None = None
    while True:
        missing = await ask()
        if not missing and before != []:
            log.info("ready", **fields)
        elif missing and before == [] and not {DRAINING, GOING_TO_END}.intersection(missing):
            log.warning("not ready", waiting_for=missing)
        if not missing or before is not None:
            before = missing
        await trio.sleep(LOOK if missing else LOOK_AGAIN)


class Probe:
    """Probe of one cluster. `answered`: its brokers answered the last time. `silent`: nothing has come yet on the
    connection that there is now."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.answered, self.silent = False, True
        self.reason = "not asked yet"

    async def run(self, *, once: bool = False) -> None:
        """Ask until cancelled or, with `once`, until an answer has come."""
        while True:
            patience = PATIENCE if self.answered else PATIENCE + self.upstream.connect_timeout
            self.silent = True
            try:
                await self.follow(patience, once)
                return
            except (OSError, trio.TooSlowError) as error:
                if self.silent:
                    self.found(False, str(error) or f"no answer in {patience:g} s")
                    await trio.sleep(AGAIN)

    async def follow(self, patience: float, once: bool) -> None:
        """Ask on one connection again and again. Raises OSError and TooSlowError when no answer comes."""
        with trio.fail_after(patience) as limit:
            async with own_connection(self.upstream) as sock:
                while True:
                    await talk(sock)
                    self.silent = False
                    self.found(True)
                    if once:
                        return
                    limit.deadline = math.inf
                    await trio.sleep(CONFIRM)
                    limit.deadline = trio.current_time() + PATIENCE

    def found(self, answered: bool, reason: str = "") -> None:
        before, self.answered, self.reason = self.answered, answered, reason
        if answered != before:
            log = self.upstream.reactor.log.bind(cluster=self.upstream.name)
            if answered:
                log.info("upstream answers")
            else:
                log.info("upstream does not answer", reason=reason)

    async def ask(self) -> None:
        """Ask one question on a connection of its own. Raises OSError."""
        async with own_connection(self.upstream) as sock:
            await talk(sock)


async def talk(sock: socket.SocketType) -> None:
    """Send ApiVersions and check the answer. Raises OSError when none comes, or one that is no answer to it."""
    frame = await send_request(sock, QUESTION, LONGEST)
    if len(frame) < 6 or int.from_bytes(frame[4:6], "big") not in MEANT:
        raise OSError(f"answered ApiVersions with {frame[:10].hex()}, which is no answer to it")
