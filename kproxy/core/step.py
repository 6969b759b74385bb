"""How deep to look at the frames of one (api, version), and what was counted of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .histogram import BROKER_BOUNDS, Histogram
from .rewrite import Buffer, Rewriter

if TYPE_CHECKING:
    from .names.lone import LoneName

HEAD: Final = 1
"""A few leading fields are read, then the frame passes as it streams in (Produce: acks)."""
WHOLE: Final = 2
"""The frame is looked at once it is whole."""
STREAM: Final = 3
"""As WHOLE when it is short or at hand; else it streams, and only its tail is looked at (Fetch: NodeEndpoints)."""
STOP: Final = 4
"""The frame is not let through, and closes the connection."""

Acks = Callable[..., int | None]
Clean = Callable[[Buffer, int, int], bool]


class Step:
    """One look-up a frame: what to do with its request and with its response. None: nothing, it is opaque.

    Counters are plain integers, counted by every connection with the same plan.
    """

    __slots__ = (
        "acks", "api", "clean", "flexible", "key", "latency", "lone_request", "lone_response", "no_nodes", "request",
        "requests", "response", "rewrite_request", "rewrite_response", "stop", "version",
    )  # fmt: skip

    def __init__(self, key: int, version: int, api: str) -> None:
        self.key, self.version, self.api = key, version, api
        self.request: int | None = None
        self.response: int | None = None
        self.acks: Acks | None = None
        self.flexible = False  # of a Produce: acks stands behind a tag buffer and a compact string
        self.rewrite_request: Rewriter | None = None
        self.rewrite_response: Rewriter | None = None
        self.lone_request: LoneName | None = None  # a long request of one topic need not be held
        self.lone_response: LoneName | None = None
        self.no_nodes: Clean | None = (
            None  # whether a whole response names no broker, where names are to be changed, too
        )
        self.stop = ""  # the reason, when `request` is STOP
        self.clean: Clean | None = None  # whether a whole response has nothing that is wanted
        self.requests = 0
        self.latency = Histogram(BROKER_BOUNDS)  # responses by the time since their request

    @property
    def responses(self) -> int:
        return self.latency.count

    @property
    def depth(self) -> str:
        """The plan's word for metrics: opaque, head, walk or full."""
        words = {None: "opaque", HEAD: "head", WHOLE: "walk", STREAM: "walk", STOP: "stop"}
        if self.api == "ApiVersions":
            return "full"
        return words[max((self.request or 0), (self.response or 0)) or None]
