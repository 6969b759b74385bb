"""What kinds share that do without something that most need to have read for them."""

from __future__ import annotations

from kproxy.rules.kinds.live import LiveRule


class SelectingRule(LiveRule):
    """Needs the names of topics that a request gives by id only to select them."""

    @property
    def reads_topics(self) -> bool:
        """Only to select them."""
        return self.selects_topics


class AnswerRule(SelectingRule):
    """Acts on answers as a whole, whatever the request is about; fetch sessions need not be known for it."""

    @property
    def reads_entities(self) -> bool:
        """Only to select them."""
        return False
