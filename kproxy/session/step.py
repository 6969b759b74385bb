"""Steps of the plan: how deep to look at the frames of one (api, version), and the counts of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kproxy.protocol.primitives import Buffer
from kproxy.session.live.rule_program import RuleProgram
from kproxy.session.rewrite.fetch_racks import FetchRacks
from kproxy.session.rewrite.names.single_topic import SingleTopicRewriter
from kproxy.session.rewrite.rewriter import Rewriter, Splicer

from .counters import ApiTally

HEAD: Final = 1
"""A few leading fields are read, then the frame passes as it streams in (Produce: acks)."""
WHOLE: Final = 2
"""The frame is looked at once it is whole."""
STREAM: Final = 3
"""Like WHOLE when it is short or at hand; else it streams, and only its tail is looked at (Fetch: NodeEndpoints)."""
STOP: Final = 4
"""The frame is not let through, and closes the connection."""
LIVE: Final = 5
"""Live rules may be about it; then it goes the way of the step's `plain` twin."""

Acks = Callable[..., int | None]
Clean = Callable[[Buffer, int, int], bool]


class Step:
    """Step of one API and version, found by one look-up a frame: what to do with its request and with its response.
    None: nothing, it is opaque.

    `tally` counts for every step of this API and version, in whatever plan; `latency` is the tally's.
    """

    __slots__ = (
        "acks",
        "api",
        "by_id",
        "clean",
        "flexible",
        "key",
        "latency",
        "no_nodes",
        "only_ids",
        "program",
        "racks",
        "request",
        "request_heads",
        "response",
        "response_heads",
        "rewrite_request",
        "rewrite_response",
        "splice_request",
        "splice_response",
        "stop",
        "tally",
        "version",
        "watched",
    )  # fmt: skip

    def __init__(self, key: int, version: int, api: str) -> None:
        self.key, self.version, self.api = key, version, api
        self.request: int | None = None
        self.response: int | None = None
        self.acks: Acks | None = None
        self.flexible = False  # in a Produce, acks stands behind a tag buffer and a compact string
        self.rewrite_request: Rewriter | None = None
        self.rewrite_response: Rewriter | None = None
        self.splice_request: Splicer | None = None  # what has one place that changes need not be held or copied
        self.splice_response: Splicer | None = None
        self.request_heads: SingleTopicRewriter | None = None  # the same splicers, where frames are mostly alike
        self.response_heads: SingleTopicRewriter | None = None
        self.no_nodes: Clean | None = (
            None  # tells if a whole response names no broker, where names are to be changed, too
        )
        self.by_id = False  # a response's only names are topic ids, which matter once one was disguised in a request
        self.only_ids = False  # and nothing else is wanted of it
        self.racks: FetchRacks | None = None  # a Fetch whose rack is all that is to change
        self.watched = False  # its frames tell the client's identity
        self.stop = ""  # the reason, when `request` is STOP
        self.clean: Clean | None = None  # tells if a whole response has nothing that is wanted
        self.program: RuleProgram | None = None
        self.tally = ApiTally(api, "", "")
        self.latency = self.tally.latency

    @property
    def plain(self) -> Step:
        """Return the step to follow when the live rules have been applied: the same, where there are none."""
        return self

    def count_in(self, tally: ApiTally) -> None:
        self.tally, self.latency = tally, tally.latency

    @property
    def depth(self) -> str:
        """Return the plan's word for metrics: opaque, head, walk, full or stop."""
        words = {None: "opaque", HEAD: "head", WHOLE: "walk", STREAM: "walk", STOP: "stop"}
        if self.api == "ApiVersions" or (self.program is not None and self.program.reads_bodies):
            return "full"
        if self.program is not None:
            return "head"
        return words[max((self.request or 0), (self.response or 0)) or None]


class RuledStep(Step):
    """Step of frames that live rules may be about: `plain` is the one to follow behind them, a step without any."""

    __slots__ = ("plain",)

    plain: Step

    def __init__(self, plain: Step) -> None:
        super().__init__(plain.key, plain.version, plain.api)
        self.plain = plain
