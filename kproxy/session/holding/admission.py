"""Admission of frames to be held: they pass the filter of a rule, and there is room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.session.phase import DRAINING

if TYPE_CHECKING:
    from kproxy.rules.exchange import Hold
    from kproxy.rules.rule_set import Running
    from kproxy.session.live.evaluation import EvaluatedExchange
    from kproxy.session.live.rule_part import Part
    from kproxy.session.session_state import SessionState


def passes_filter(
    session: SessionState, part: Part, exchange: EvaluatedExchange, response: bytes | None, now: float
) -> bool:
    """Return True if the exchange passes the rule's filter, as far as it has come; False, counted as a problem of the
    rule, if that cannot be judged."""
    request = b"" if exchange.content is None else exchange.content()
    try:
        return session.shared.desk.judge(part.wanted, session, exchange, request, response, now)
    except Exception as error:  # noqa: BLE001  # whatever a rule does, the traffic of others goes on
        part.running.failed(error)
        session.counters.count("rules_failed")
        return False


def may_hold(session: SessionState, running: Running, hold: Hold, size: int) -> bool:
    """Return True if the rule may hold a frame of so many bytes, besides those that are held; else it is counted. To be
    asked when a frame is evaluated, and when it is held then."""
    if session.phase is DRAINING:
        return False
    desk = session.shared.desk
    if len(running.held) < hold.most and desk.bytes + size <= desk.most_bytes:
        return True
    desk.passed_over += 1
    session.counters.count("hold_passed_over")
    return False
