"""Rules and news of rules as a supervisor tells them to its workers."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from kproxy.base.errors import InternalError
from kproxy.rules.document.store import RuleStore, StoredRule

from .messages import HandedRule, RuleNews, RulesState
from .worker_pool import Recipients


def packed(state: RulesState) -> bytes:
    """Encode a state for workers. Raises InternalError for what has no place in a message: numbers of more than 64
    bits."""
    try:
        return msgspec.msgpack.encode(state)
    except (OverflowError, TypeError) as error:
        raise InternalError(f"rules cannot be told to workers: {error}") from None


def handed(store: RuleStore) -> list[HandedRule]:
    """Return all rules of a store, as workers are told of them."""
    return [handed_rule(stored_rule) for stored_rule in store.stored_rules.values()]


def handed_rule(stored_rule: StoredRule) -> HandedRule:
    running = stored_rule.running
    return HandedRule(
        content=digest(stored_rule),
        raw=stored_rule.parsed.raw,
        position=stored_rule.parsed.position,
        origin=stored_rule.origin,
        active=stored_rule.active,
        born=0 if running is None else running.born,
        lives=0 if running is None else running.lives,
        resets=0 if running is None else running.resets,
        began=0.0 if running is None else running.trigger.began,
    )


def digest(stored_rule: StoredRule) -> bytes:
    return blake2b(stored_rule.content.encode(), digest_size=16).digest()


class RuleNewsSender:
    """Stand-in for the audit's `RuleEvents`, which are with the workers: one of them records what is told here."""

    def __init__(self, pool: Recipients) -> None:
        self.pool = pool

    def loaded(self, now: float, origin: str, version: str, rules: int, before: str | None = None) -> None:
        self._tell("loaded", now, origin, version, rules, before)

    def rejected(self, now: float, origin: str, version: str, mistakes: Iterable[str]) -> None:
        self._tell("rejected", now, origin, version, list(mistakes))

    def changed(self, now: float, change: str, rule: str | None, version: str, rules: int) -> None:
        self._tell("changed", now, change, rule, version, rules)

    def tell(self) -> None:
        """Do nothing: counts are the workers' own to tell."""

    def _tell(self, method: str, *given: Any) -> None:
        for worker in self.pool.workers:
            if worker.ready and worker.channel is not None:
                worker.channel.tell(RuleNews(method, list(given)))
                return
