"""Discovery of what the replay has to know of the target: versions, leaders, coordinators.

A topic that the replay has just made, or a coordinator whose internal topic is being made, is not there at once. It is
asked for again until it is, for as long as the player has patience; anything else that is not there is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from kproxy.base.errors import DecodeError
from kproxy.protocol import Message, decode_response, encode

from .links import SCOUT, ReplayLinks
from .own_requests import ask_coordinator, ask_topics, ask_versions
from .target import CoordinatorKey, TargetCluster

AGAIN_AFTER = 0.1
"""Seconds: Java clients' retry.backoff.ms."""


class TargetDiscovery:
    """Discovery of one target. `ready`: the versions are known. `failed`: why they cannot be."""

    def __init__(self, target: TargetCluster, links: ReplayLinks, patience: float) -> None:
        self.target, self.links, self.patience = target, links, patience
        self.ready, self.failed = False, ""
        self.asking: set[str | CoordinatorKey] = set()
        self.since: dict[str | CoordinatorKey, float] = {}
        self.again: list[tuple[float, str | CoordinatorKey]] = []

    def begin(self) -> None:
        """Send the request for the versions, unless the target is the recorded cluster."""
        if self.target.recorded:
            self.ready = True
            return
        self.ask(ask_versions(), self.have_versions)

    def want(self, missing: Iterable[str | CoordinatorKey], now: float) -> None:
        """Send requests for those that are not being asked for already."""
        new = [item for item in missing if item not in self.asking]
        for item in new:
            self.asking.add(item)
            self.since.setdefault(item, now)
        if topics := [item for item in new if isinstance(item, str)]:
            self.ask(ask_topics(self.target, topics), partial(self.have, topics))
        for item in new:
            if not isinstance(item, str):
                self.ask(ask_coordinator(self.target, item), partial(self.have, [item]))

    def tick(self, now: float) -> float | None:
        """Send requests again that are due; returns when the next is, None if none waits."""
        due = [one for when, one in self.again if when <= now]
        self.again = [(when, one) for when, one in self.again if when > now]
        self.asking.difference_update(due)
        self.want(due, now)
        return min((when for when, _ in self.again), default=None)

    # ---- inside

    def ask(self, request: Message, then: Callable[[float], None]) -> None:
        link = self.links.to(SCOUT, self.target.bootstrap)

        def answered(frame: bytes | None, now: float) -> None:
            if frame is not None:
                try:
                    response = decode_response(frame, request.api.key, request.version, trailing=True)
                    self.target.learn(request, response)
                except DecodeError as error:
                    self.failed = self.failed or f"the target's answer cannot be read: {error}"
            elif not self.ready:
                reason = self.links.unreachable.get(self.target.bootstrap, "it closed the connection")
                self.failed = f"the target {address_text(self.target.bootstrap)} does not answer: {reason}"
            then(now)

        self.links.send(link, encode(request), answered)

    def have_versions(self, now: float) -> None:
        self.ready = not self.failed

    def have(self, wanted: Iterable[str | CoordinatorKey], now: float) -> None:
        for item in wanted:
            self.asking.discard(item)
            if item in self.target.looked_up:
                self.since.pop(item, None)
            elif self.may_appear_later(item) and now - self.since[item] < self.patience:
                self.asking.add(item)
                self.again.append((now + AGAIN_AFTER, item))
            else:
                self.target.give_up([item] if isinstance(item, str) else ())
                self.target.looked_up.add(item)
                self.since.pop(item, None)

    def may_appear_later(self, item: str | CoordinatorKey) -> bool:
        """Return True if a topic or coordinator may be there later."""
        return not isinstance(item, str) or item in self.target.created


def address_text(address: tuple[str, int]) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
