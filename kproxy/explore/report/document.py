"""The report of explorations as one JSON document, `kproxy.explore/1`, and coverage as properties for JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from kproxy.explore.judge import FailureSignature, JudgedRun
from kproxy.explore.known_clients import known_behaviour
from kproxy.explore.model import ExchangePlace, FaultPlan, RaisedError
from kproxy.explore.plan import place_text, plan_rules, plan_text, selectors
from kproxy.explore.result import Exploration, FaultFinding

SCHEMA = "kproxy.explore/1"


def json_report(results: Iterable[Exploration]) -> str:
    tests = [exploration_document(result) for result in results]
    return json.dumps({"schema": SCHEMA, "tests": tests}, indent=1)


def exploration_document(result: Exploration) -> dict[str, Any]:
    learned = result.learned
    return {
        "test": result.test,
        "problem": result.problem,
        "flaky": result.flaky,
        "skipped": result.skipped,
        "interrupted": result.interrupted,
        "exit_code": result.exit_code(),
        "classes": list(result.classes),
        "jobs": result.jobs,
        "seconds": round(result.seconds, 3),
        "exploring_seconds": round(result.exploring, 3),
        "limit": result.limit,
        "learned": {"runs": len(result.learning), "kinds": learned.kinds, "varying": list(learned.varying)},
        "places": [place_document(place) for place in learned.places],
        "runs": [run_document(one) for one in result.runs],
        "outcomes": result.outcomes,
        "findings": [finding_document(one) for one in result.findings],
        "coverage": {"faults": sorted(result.all_faults), "applied": sorted(result.covered & result.all_faults)},
        "drip": result.drip,
        "left": result.left,
        "refused": result.refused,
        "unlike_mock": list(result.unlike_mock),
        "notes": result.notes,
    }


def coverage_properties(result: Exploration) -> list[tuple[str, object]]:
    """Return coverage, runs and findings of an exploration as properties of its test case."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in result.outcomes.items())
    properties = {
        "places": len(result.learned.places),
        "runs": len(result.runs),
        "outcomes": outcomes,
        "faults": len(result.all_faults),
        "faults_applied": len(result.covered & result.all_faults),
        "faults_not_applied": "; ".join(sorted(result.all_faults - result.covered)),
        "plans_left": result.left,
        "findings": len(result.findings),
        "new_findings": len(result.new_findings),
        "client_behaviour": "; ".join(one.name for one in map(known_behaviour, result.findings) if one),
        "rule_files": "; ".join(one.file for one in result.findings if one.file),
        "problem": result.problem,
    }
    return [(f"kproxy_explore.{name}", value) for name, value in properties.items() if value != ""]


def place_document(place: ExchangePlace) -> dict[str, Any]:
    """Return a place with the selectors and the number by which a rule finds it."""
    return {
        "text": place_text(place),
        "match": selectors(place),
        "nth": place.mark.nth,
        "mark": place.mark.kind,
        "traits": sorted(place.traits),
    }


def plan_document(plan: FaultPlan) -> dict[str, Any]:
    """Return a plan as a sentence, as the names of its faults, and as rules."""
    return {
        "text": plan_text(plan),
        "faults": [step.fault.name for step in plan.steps],
        "places": [place_text(step.place) for step in plan.steps],
        "rules": plan_rules(plan),
    }


def run_document(one: JudgedRun) -> dict[str, Any]:
    """Return a run with its outcome and what was seen of it."""
    run = one.run
    return {
        "plan": plan_document(run.plan),
        "outcome": one.outcome,
        "seconds": round(run.seconds, 3),
        "counters": [
            {"matched": each.matched, "fired": each.fired, "applied": each.applied, "problems": list(each.problems)}
            for each in run.counters
        ],
        "errors": list(run.errors),
        "digest": run.digest,
        "raised": raised_document(run.raised),
        "violations": [{"check": each.check, "text": each.text} for each in run.violations],
        "problem": run.problem,
        "signature": None if one.signature is None else one.signature.short,
    }


def raised_document(raised: RaisedError | None) -> dict[str, str] | None:
    """Return the exception of a run as plain values; None where there is none."""
    return None if raised is None else {"type": raised.type, "message": raised.message, "where": raised.where}


def signature_document(signature: FailureSignature) -> dict[str, Any]:
    return {
        "short": signature.short,
        "outcome": signature.outcome,
        "type": signature.type,
        "message": signature.message,
        "where": signature.where,
        "checks": list(signature.checks),
        "cause": list(signature.cause),
    }


def finding_document(finding: FaultFinding) -> dict[str, Any]:
    """Return a finding with its plans, how often it failed, and where its rules are."""
    failed, controls = finding.controls
    behaviour = known_behaviour(finding)
    return {
        "signature": signature_document(finding.signature),
        "first": finding.first,
        "met": finding.met,
        "fails": finding.fails,
        "of": finding.of,
        "certain": finding.certain,
        "known": finding.known,
        "controls": {"failed": failed, "of": controls},
        "example": plan_document(finding.example.run.plan),
        "smallest": plan_document(finding.smallest),
        "minimal": [{**plan_document(plan), "failed": fails, "of": of} for plan, fails, of in finding.minimal],
        "replays": None if finding.replays is None else {"failed": finding.replays, "of": finding.replays_of},
        "shrinking": {"tried": finding.tried, "seconds": round(finding.seconds, 3), "complete": finding.complete},
        "software": list(finding.example.run.software),
        "file": finding.file,
        "client_behaviour": None if behaviour is None else {**asdict(behaviour), "text": list(behaviour.lines())},
    }
