"""Output of `kproxy replay`: the plan of a dry run, the report of a replay, the counts of requests that it served."""

from __future__ import annotations

import json
from typing import Any

from kproxy.base.terminal import print_rows, say
from kproxy.tools.replay.player import ReplayPlayer
from kproxy.tools.replay.recording import Recording
from kproxy.tools.replay.report import ApiRow, ReplayReport, percentiles, samples
from kproxy.tools.replay.responder import RecordingResponder

PLAN = ("number", "at", "connection", "request", "bytes", "sent")
REPORT = ("api", "sent", "same", "different", "errors", "not compared", "unanswered", "not sent", "again",
          "recorded p50/p99 ms", "now p50/p99 ms")  # fmt: skip
SERVED = ("api", "requests", "exact", "by keys", "made", "unmatched")


def print_plan(recording: Recording, output: str) -> None:
    """Print the requests that would be sent, in order, and those that would not, and why."""
    rows = [
        (one.place + 1, f"{one.sent - recording.start:.3f}", one.line.number, f"{one.api} {one.version}",
         one.seen.request.size if one.seen.request else 0, f"no: {one.unfit}" if one.unfit else "yes")
        for one in recording.exchanges
    ]  # fmt: skip
    if output == "json":
        say(json.dumps([dict(zip(PLAN, row, strict=True)) for row in rows], indent=2))
    else:
        print_rows(PLAN, rows)


def print_report(report: ReplayReport, player: ReplayPlayer, output: str) -> None:
    """Print the counts of each API, the differences, errors first, and what was not done or not exact."""
    about = {
        "connections": player.links.opened,
        "partitions_astray": player.router.astray,
        "did_not_wait": player.forced,
    }
    if output == "json":
        say(json.dumps({**report.as_json(), **about}, indent=2, ensure_ascii=False))
        return
    print_rows(REPORT, [row_of(row) for row in report.sorted()])
    for row in report.sorted():
        for sample in samples(row):
            one = sample.difference
            where = f" {one.path}" if one.path else ""
            say(f"{row.api}{where}: {one.recorded} → {one.now} ({sample.count}×, first in request {sample.place})")
    for (topic, number), was, now, missing, new in report.reading.differences():
        say(f"records read of {topic} {number}: {was} recorded, {now} now, {missing} missing, {new} new")
    read, now = report.reading.totals()
    if read or now:
        say(f"records read: {read} recorded, {now} now")
    for text in said(report, about):
        say(text)


def said(report: ReplayReport, about: dict[str, int]) -> list[str]:
    """Return lines that explain the report's numbers: why requests were not sent, and what was inexact."""
    lines = [f"not sent, {count}×: {reason}" for reason, count in report.reasons.most_common()]
    lines += [f"{count}×: {note}" for note, count in report.notes.most_common()]
    if about["partitions_astray"]:
        count = about["partitions_astray"]
        lines.append(f"{count}×: a partition of a share group was asked of a broker that does not lead it")
    if about["did_not_wait"]:
        lines.append(f"{about['did_not_wait']}×: a request did not wait any longer for an answer before it")
    if report.reading.beyond:
        lines.append(f"{report.reading.beyond} records were not compared: there are too many")
    return lines


def row_of(row: ApiRow) -> tuple[Any, ...]:
    return (row.api, row.sent, row.same, row.different, row.errors, row.uncompared + row.silent, row.unanswered,
            row.not_sent, row.tries, times(row.recorded), times(row.now))  # fmt: skip


def times(seconds: list[float]) -> str | None:
    found = percentiles(seconds)
    return None if found is None else f"{found['p50']:.1f}/{found['p99']:.1f}"


def print_served(stage: RecordingResponder, output: str) -> None:
    """Print how requests were answered, and which could not be."""
    rows = [(api, *counts) for api, counts in sorted(stage.counts().items())]
    if output == "json":
        found = [dict(zip(SERVED, row, strict=True)) for row in rows]
        say(json.dumps({"apis": found, "unmatched": dict(stage.unmatched)}, indent=2, ensure_ascii=False))
        return
    print_rows(SERVED, rows)
    for text, count in stage.unmatched.most_common():
        say(f"unmatched, {count}×: {text}")
