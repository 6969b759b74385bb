"""Baseline of known failures: a JSON file of signatures and plans, sorted so that diffs are short."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kproxy.errors import InputError
from kproxy.explore.judge import FINDINGS, FailureSignature
from kproxy.explore.plan import plan_text
from kproxy.explore.result import Exploration

SCHEMA = "kproxy.explore.baseline/1"
LARGEST = 16 << 20
"""Bytes of a baseline that is read."""


class Baseline:
    """Known failures by test. `known` tells the explorer what is no news."""

    def __init__(self, failures: Iterable[dict[str, Any]] = ()) -> None:
        self.failures = {(one["test"], one["signature"]): one for one in failures}

    @classmethod
    def read(cls, path: Path | None, update: bool = False) -> Baseline:
        """Return the baseline in a file, or an empty one for None. A missing file is an empty baseline if `update` will
        write it. Raises InputError."""
        if path is None or (update and not path.exists()):
            return cls()
        try:
            with path.open("rb") as file:
                data = file.read(LARGEST + 1)
        except FileNotFoundError:
            raise InputError(f"baseline: expected an existing file, or the option update, got {path}") from None
        except OSError as error:
            raise InputError(f"{path}: the baseline cannot be read: {error.strerror or error}") from None
        try:
            document = json.loads(data)
            if document["schema"] != SCHEMA:
                raise ValueError(f"expected schema {SCHEMA!r}, got {document['schema']!r}")
            failures = [
                {"test": str(one["test"]), "plan": str(one["plan"]), "signature": signature_from(one["signature"])}
                for one in document["failures"]
            ]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{path}: this is no baseline of explorations: {error}") from None
        return cls(failures)

    def known(self, test: str) -> frozenset[FailureSignature]:
        return frozenset(signature for name, signature in self.failures if name == test)

    def updated(self, results: Iterable[Exploration]) -> Baseline:
        """Return a baseline that has, of the tests that were explored to their end, what was found now."""
        explored = [result for result in results if result.was_explored]
        names = {result.test for result in explored}
        kept = [one for (test, _), one in self.failures.items() if test not in names]
        found = [
            {"test": result.test, "signature": finding.signature, "plan": plan_text(finding.smallest)}
            for result in explored
            for finding in result.findings
            if not finding.is_of_test
        ]
        return Baseline([*kept, *found])

    def text(self) -> str:
        """Return the baseline as sorted JSON."""
        failures = sorted(
            ({**one, "signature": plain_signature(one["signature"])} for one in self.failures.values()),
            key=lambda one: json.dumps(one, sort_keys=True),
        )
        return json.dumps({"schema": SCHEMA, "failures": failures}, indent=1, sort_keys=True) + "\n"


def plain_signature(signature: FailureSignature) -> dict[str, Any]:
    """Return the fields of a signature that are not empty, as plain values."""
    fields = {
        "outcome": signature.outcome,
        "type": signature.type,
        "message": signature.message,
        "where": signature.where,
        "checks": list(signature.checks),
        "cause": list(signature.cause),
    }
    return {name: value for name, value in fields.items() if value}


def signature_from(fields: dict[str, Any]) -> FailureSignature:
    """Return the signature with these fields. Raises KeyError, TypeError and ValueError for others."""
    if fields["outcome"] not in FINDINGS:
        raise ValueError(f"expected outcome {', '.join(sorted(FINDINGS))}, got {fields['outcome']!r}")
    texts = {name: str(fields.get(name, "")) for name in ("type", "message", "where")}
    checks, cause = (tuple(map(str, fields.get(name, ()))) for name in ("checks", "cause"))
    return FailureSignature(fields["outcome"], checks=checks, cause=cause, **texts)
