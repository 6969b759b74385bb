"""Verification of Kafka's guarantees in recorded traffic.

    exchanges of captures and tapes → facts → ordered by time → checks → findings → explanations

The record is the only source. A check is *not checked*, never clean, if the record lacks exchanges that it needs.
"""

from __future__ import annotations

from .explain import explain
from .finding import CheckDefinition, Evidence, Finding, Verdict, checks
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
