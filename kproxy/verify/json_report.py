"""Verdict as JSON, for programs: the schema is named in it, and only grows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from .facts import Witness
from .finding import Finding, Verdict

SCHEMA = "kproxy.verify/1"


def report_json(verdict: Verdict, files: Sequence[str]) -> dict[str, Any]:
    """Return a verdict as values that JSON has. `files`: what was read."""
    return {
        "schema": SCHEMA,
        "files": list(files),
        "exchanges": verdict.exchanges,
        "connections": verdict.connections,
        "views": list(verdict.views),
        "incomplete": list(verdict.incomplete),
        "checked": dict(verdict.counts),
        "findings": [finding_json(finding) for finding in verdict.findings],
        "clean": list(verdict.clean),
        "not_checked": dict(verdict.not_checked),
        "exit_code": verdict.exit_code,
        "reason": verdict.reason,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "level": finding.level,
        "about": finding.about,
        "says": finding.says,
        "view": finding.view,
        "else": finding.else_,
        "rules": list(finding.rules),
        "times": finding.times,
        "details": list(finding.details),
        "evidence": [{**witness_json(one.witness), "says": one.says} for one in finding.evidence],
    }


def witness_json(witness: Witness) -> dict[str, Any]:
    address, connection, _ = witness.connection
    return {
        "number": witness.number,
        "began": timestamp(witness.began),
        "ended": None if witness.ended is None else timestamp(witness.ended),
        "connection": connection,
        "correlation_id": witness.correlation_id,
        "client_address": address,
        "client": witness.client,
        "node": witness.node,
        "api": witness.api,
        "version": witness.version,
        "rules": list(witness.rules),
        "answered_by": "kproxy" if witness.made_by_kproxy else "broker" if witness.ended is not None else None,
        "software": witness.software,
    }


def timestamp(seconds: float) -> str | None:
    """Return seconds since 1970 as ISO 8601 in UTC; None for a number that is no time."""
    try:
        made = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return made.isoformat(timespec="microseconds").replace("+00:00", "Z")
