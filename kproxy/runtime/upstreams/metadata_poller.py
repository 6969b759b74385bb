"""Poller of each cluster's topics, on a connection of kproxy's own, for the record of its topology,
and locator of nodes by their addresses.

A cluster that wants authentication, and at which kproxy does not log in itself, does not answer; then what clients are
shown has to do.

For listeners that are not transparent, answers are rewritten, and what they say is known from that. At transparent ones
they pass unread, and where a diverted connection goes is an address only. So kproxy asks Metadata for the brokers now
and then, looks their names up, and finds the node of a connection by its destination. Until then, and where the brokers
do not answer it, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_response
from kproxy.protocol.breath import each, freeing, keep
from kproxy.protocol.table.api_keys import METADATA
from kproxy.runtime.driven import HostPort, host_port
from kproxy.runtime.io.turns import in_a_turn
from kproxy.session.cluster import VERSION, all_topics_request, brokers_request
from kproxy.session.rewrite.context import is_reachable

from .own_connection import MAX_METADATA, own_connection, send_request
from .upstream import Upstream

PATIENCE = 30.0
"""Seconds that all of an answer may take; of a large cluster it has some ten MB."""
BROKERS_ONLY = 1 << 20  # bytes of a response without topics, if the cluster may have at most 1,000 nodes
NODE_BYTES = 1024  # of a larger cluster, for each node of limits.max_nodes
AGAIN = 5.0
"""Seconds to the next question when the cluster could not be asked."""
EVERY = 300.0
"""Seconds between two questions; clients ask for new brokers as often (metadata.max.age.ms)."""


class MetadataConsumer(Protocol):
    """Consumer of answers to Metadata."""

    def learn(self, body: Mapping[str, Any], broker_name: Callable[[str], str | None], own: bool = False) -> object: ...


class MetadataPoller:
    """Poller of one cluster's Metadata; `picture` learns the responses. `request` makes the requests.

    A response beyond `longest` bytes is not read. The log names both sizes, and the next request follows after `every`
    seconds.
    """

    def __init__(
        self, upstream: Upstream, picture: MetadataConsumer, every: float, log: FilteringBoundLogger,
        request: Callable[[], bytes] = all_topics_request, longest: int = MAX_METADATA,
    ) -> None:  # fmt: skip
        self.upstream, self.picture, self.every = upstream, picture, every
        self.request, self.longest = request, longest
        self.log = log.bind(cluster=upstream.name)

    async def run(self) -> None:
        """Ask every so often, until cancelled."""
        logged = False
        while True:
            try:
                with trio.fail_after(PATIENCE):
                    await self.ask()
                logged, pause = False, self.every
            except (OSError, DecodeError, trio.TooSlowError) as error:
                if not logged:
                    self.log.info("topology cannot be asked for", reason=str(error) or "no answer in time")
                logged, pause = True, min(AGAIN, self.every)
                if isinstance(error, (ConnectionError, DecodeError)):  # the next response will be the same
                    pause = self.every
            await trio.sleep(pause)

    async def ask(self) -> None:
        """Send one request on a connection of its own. Raises OSError and DecodeError."""
        async with own_connection(self.upstream) as sock:
            frame = await send_request(sock, self.request(), self.longest)
        # Decoding takes seconds for a large cluster, so it is done in a thread. librdkafka's mock sends an extra byte.
        read = partial(decode_response, frame, METADATA, VERSION, trailing=True)
        bodies = [(await trio.to_thread.run_sync(read)).body]

        def learn() -> None:
            body = keep(bodies.pop())  # which nobody else has, so that it is freed in pieces
            self.picture.learn(body, lambda name: None, own=True)

        await in_a_turn(self.upstream.reactor, f"cluster {self.upstream.name}", lambda: freeing(len(frame), learn))


class NodeLocator(MetadataPoller):
    """Locator of one cluster. `nodes` are those that the brokers have named, by IP address and port."""

    def __init__(self, upstream: Upstream, log: FilteringBoundLogger) -> None:
        longest = max(BROKERS_ONLY, NODE_BYTES * upstream.topology.most)
        super().__init__(upstream, self, EVERY, log, brokers_request, longest)
        self.named: dict[int, HostPort] = {}
        self.nodes: dict[HostPort, int] = {}

    def learn(self, body: Mapping[str, Any], broker_name: object, own: bool = False) -> None:
        """Take the brokers of an answer; of more than a cluster may have, the first ones."""
        nodes = [(one["node_id"], one["host"], one["port"]) for one in each(body["brokers"])]
        reachable = [(node, (host, port)) for node, host, port in each(nodes) if is_reachable(host, port)]
        self.named = dict(reachable[: self.upstream.topology.most])

    async def ask(self) -> None:
        """Ask, and find the addresses of all brokers that are named. Raises OSError and DecodeError."""
        await super().ask()
        before, self.nodes = self.nodes, {}
        for node, address in self.named.items():
            with suppress(OSError):  # of those that cannot be found, nobody gets the address
                endpoints = self.upstream.resolver.known(address) or await self.upstream.resolver.look_up(address)
                self.nodes.update({host_port(sockaddr): node for _, sockaddr in endpoints})
        if self.nodes != before:
            self.log.info("nodes found", nodes=sorted(set(self.nodes.values())))
