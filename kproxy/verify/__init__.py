"""Verification of recorded traffic: which of Kafka's guarantees a history breaks, proved by its own exchanges.

    exchanges (capture, tape)  →  facts (reading)  →  order of time  →  checks  →  findings  →  explanations

Nothing is asked of a client, broker or topic. What a check needs and the record lacks makes it *not checked*, never
clean.
"""

from __future__ import annotations

from .checks import CheckDefinition, checks
from .explain import explain
from .finding import Evidence, Finding, Verdict
from .options import VerifyTerms
from .verifier import VerifiedExchange, Verifier, verify

__all__ = [
    "CheckDefinition",
    "Evidence",
    "Finding",
    "Verdict",
    "VerifiedExchange",
    "Verifier",
    "VerifyTerms",
    "checks",
    "explain",
    "verify",
]
