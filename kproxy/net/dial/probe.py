"""Probe of each cluster with ApiVersions now and then, so that `/readyz` can say whether its brokers answer.

Strategy. One connection is kept for that, logged in where kproxy does that, so that a cluster pays one small request
each time. When nothing comes on it, another broker is tried before the cluster counts as lost: connections end for
many reasons, and one broker is not the cluster.
"""

from __future__ import annotations

import math
import socket

import trio

from .own_connection import own_connection, send_request
from .upstream import Upstream

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
