"""Poller of each cluster's topics, on a connection of kproxy's own, for the record of its topology.

A cluster that wants authentication, and at which kproxy does not log in itself, does not answer; then what clients are
shown has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.core.topics import METADATA, VERSION, all_topics_request
from kproxy.errors import DecodeError
from kproxy.wire import decode_response

from .errand import errand
from .framed import framed
from .upstream import Upstream

PATIENCE = 30.0
"""Seconds that all of an answer may take; of a large cluster it has some ten MB."""
LONGEST = 256 << 20
"""Bytes of an answer; more cannot be meant."""
AGAIN = 5.0
"""Seconds to the next question when the cluster could not be asked."""


class Learner(Protocol):
    """Consumer of answers to Metadata."""

    def learn(self, body: Mapping[str, Any], broker_name: Callable[[str], str | None], own: bool = False) -> object: ...


class Survey:
    """Poller of one cluster; `picture` learns what it finds. `request` makes its question, a Metadata request."""

    def __init__(
        self, upstream: Upstream, picture: Learner, every: float, log: FilteringBoundLogger,
        request: Callable[[], bytes] = all_topics_request,
    ) -> None:  # fmt: skip
        self.upstream, self.picture, self.every, self.request = upstream, picture, every, request
        self.log = log.bind(cluster=upstream.name)

    async def run(self) -> None:
        """Ask every so often, until cancelled."""
        told = False
        while True:
            try:
                with trio.fail_after(PATIENCE):
                    await self.ask()
                told, pause = False, self.every
            except (OSError, DecodeError, trio.TooSlowError) as error:
                if not told:
                    self.log.info("topology cannot be asked for", reason=str(error) or "no answer in time")
                told, pause = True, min(AGAIN, self.every)
                if isinstance(error, (ConnectionError, DecodeError)):  # it does not talk to us: no use to hurry
                    pause = self.every
            await trio.sleep(pause)

    async def ask(self) -> None:
        """Ask one question on a connection of its own. Raises OSError and DecodeError."""
        async with errand(self.upstream) as sock:
            frame = await framed(sock, self.request(), LONGEST)
        # In a thread: of a large cluster it takes seconds. librdkafka's mock sends a byte too many.
        answer = await trio.to_thread.run_sync(partial(decode_response, frame, METADATA, VERSION, trailing=True))
        self.picture.learn(answer.body, lambda name: None, own=True)
