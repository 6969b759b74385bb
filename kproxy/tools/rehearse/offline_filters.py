"""Judge of rules' filters where no proxy runs: in tests of rules, rehearsals and explanations."""

from __future__ import annotations

from kproxy.record.audit.request_event import request_event
from kproxy.record.filter.judge import FilterJudge
from kproxy.session.holding.desk import HoldingDesk
from kproxy.session.shared import Shared

EVERY_PARTITION = 1 << 31


def judged(*, records: bool = True) -> Shared:
    """Return what connections of one cluster share, with somebody who judges the filters of their rules. `records`:
    whether these may ask about records."""
    desk = HoldingDesk()
    desk.judge = FilterJudge(lambda seen: request_event(seen, float, EVERY_PARTITION), records=records)
    return Shared(desk=desk)
