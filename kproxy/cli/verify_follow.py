"""Verification of what passes through a running proxy: findings as they come, and a verdict at Ctrl-C."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from time import monotonic
from typing import Any

import msgspec

from kproxy.cli.admin_client import Admin
from kproxy.cli.exchange_input import judge
from kproxy.cli.interrupt import Interruption
from kproxy.cli.verify_input import filtered
from kproxy.errors import InternalError
from kproxy.events.schema import REQUEST_EVENT
from kproxy.observe.filter.filter import Filter
from kproxy.terminal import say
from kproxy.verify import Finding, Verdict, Verifier, VerifyTerms
from kproxy.verify.terms import MissingPart

LOOK = 2.0
"""Seconds from one look at what is found to the next, at least."""
SHARE = 10
"""Times as long as a look has taken, until the next one: so most of the time is for what passes."""
MOST_TOLD = 1000
"""Findings that are told as they come; the verdict has the others."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class FollowedProxy:
    """Traffic of a running proxy after the first line of its stream.

    `dropped`: exchanges that came faster than they were read, with their APIs as far as the proxy reports them.
    `unknown`: exchanges that the filter could not judge. `ended`: the reason of its end, empty before it.
    """

    def __init__(self, admin: Admin, wanted: Filter) -> None:
        self.admin, self.wanted = admin, wanted
        self.listening = False
        self.dropped = self.unknown = 0
        self.dropped_apis: Counter[str] = Counter()
        self.ended = ""

    def lines(self) -> Generator[dict[str, Any]]:
        """Yield what the proxy tells, up to its end. Raises KproxyError if it tells nothing at all, or is none."""
        try:
            for line in self.admin.stream("/api/tail", {"filter": str(self.wanted) or None}):
                try:
                    told = _decode(line)
                    judge(REQUEST_EVENT.name, told.get("request") or {})
                except msgspec.DecodeError:
                    raise InternalError(f"what answers at {self.admin.url} is no kproxy") from None
                if not self.listening:
                    self.listening = True
                    say(f"following the proxy at {self.admin.url}, Ctrl-C ends it", err=True)
                yield told
        except InternalError as error:
            if not self.listening:
                raise
            self.ended = str(error)

    def missing(self) -> list[MissingPart]:
        """Return the parts of the traffic that were not read up to now."""
        parts: list[MissingPart] = []
        if self.dropped:
            apis = frozenset(self.dropped_apis) if sum(self.dropped_apis.values()) == self.dropped else None
            text = f"{self.dropped} exchanges came faster than they were read, and were left out"
            parts.append(MissingPart(text, apis, apis))
        if self.unknown:
            parts.append(MissingPart(f"{self.unknown} exchanges could not be judged by the filter"))
        if self.wanted:
            parts.append(filtered(f"only exchanges that fit {self.wanted} were looked at", str(self.wanted)))
        return parts


def follow(admin: Admin, wanted: Filter, terms: VerifyTerms, tell: Callable[[Finding], object]) -> Verdict:
    """Return what passes through a proxy until Ctrl-C, or its end, proves. `tell`: called with each finding when it is
    first there, or is surer; later exchanges may still clear one. Raises KproxyError."""
    terms = replace(terms, view="clients")
    proxy, verifier, told = FollowedProxy(admin, wanted), Verifier(terms), set[tuple[str, str, str]]()
    due = monotonic() + LOOK
    with closing(proxy.lines()) as lines:
        for line in Interruption().items(lines):
            if "request" in line:
                verifier.take_event(line["request"])
            proxy.dropped += line.get("dropped") or 0
            proxy.dropped_apis.update(line.get("apis") or {})
            proxy.unknown += line.get("unknown") or 0
            began = monotonic()
            if began < due:
                continue
            terms.incomplete[:] = proxy.missing()
            for finding in verifier.verdict(so_far=True).findings:
                key = finding.check, finding.about, finding.level
                if key not in told and len(told) < MOST_TOLD:
                    told.add(key)
                    tell(finding)
            due = monotonic() + max(LOOK, SHARE * (monotonic() - began))
    if proxy.ended:
        say(f"kproxy: {proxy.ended}", err=True)
    terms.incomplete[:] = proxy.missing()
    return verifier.verdict()
