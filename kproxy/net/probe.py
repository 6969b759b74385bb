"""Asks each cluster for ApiVersions now and then, so that `/readyz` can say whether its brokers answer."""

from __future__ import annotations

import socket

import trio

from .attempt import attempt
from .errand import errand
from .upstream import Upstream

AGAIN = 1.0
"""Seconds to the next question while there is no answer."""
CONFIRM = 10.0
"""Seconds to the next question after an answer: a cluster that is lost is noticed within this time."""
PATIENCE = 5.0
"""Seconds that an answer may take."""
QUESTION = bytes.fromhex("0000001000120000000000010006") + b"kproxy"
"""ApiVersions v0, the one request that every broker since 0.10 answers, before authentication, too (KIP-35)."""
MEANT = (35, 0)
"""Error codes that are an answer: a version not supported is one as well."""


class Probe:
    """`answered` says whether the cluster's brokers answered the last time they were asked."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.answered = False
        self.reason = "not asked yet"

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            before = self.answered
            try:
                with trio.fail_after(PATIENCE + self.upstream.connect_timeout):
                    await self.ask()
                self.answered, self.reason = True, ""
            except (OSError, trio.TooSlowError) as error:
                self.answered, self.reason = False, str(error) or "no answer in time"
            if self.answered != before:
                self.upstream.reactor.log.info("upstream answers" if self.answered else "upstream does not answer",
                                               cluster=self.upstream.name, reason=self.reason)  # fmt: skip
            await trio.sleep(CONFIRM if self.answered else AGAIN)

    async def ask(self) -> None:
        """One question on a connection of its own. Raises OSError."""
        async with errand(self.upstream) as sock:
            await talk(sock)


async def talk(sock: socket.SocketType) -> None:
    """One question and its answer. Raises OSError when there is none, or one that is no answer to it."""
    await attempt(sock, lambda: sock.send(QUESTION))
    said = b""
    while len(said) < 10:
        more: bytes = await attempt(sock, lambda: sock.recv(65536))
        if not more:
            raise OSError("closed before it answered ApiVersions")
        said += more
    if said[4:8] != QUESTION[8:12] or int.from_bytes(said[8:10], "big") not in MEANT:
        raise OSError(f"answered ApiVersions with {said[:10].hex()}, which is no answer to it")
