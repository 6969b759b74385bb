"""Models of what the API tells about exchanges that it sends again."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .models import Shown

SentOutcome = Literal["answered", "no_answer_due", "unanswered"]


class SentAgainShown(Shown):
    """Request that was sent again, and what became of it."""

    id: str | None = Field(description="of the new exchange; null: it was not kept")
    again_of: str = Field(description="id of the exchange that the request is from")
    outcome: SentOutcome
    reason: str = Field(description="why there is no answer")
    notes: list[str] = Field(description="what is different about the request")
    seconds: float | None = Field(description="from the request to its answer")
