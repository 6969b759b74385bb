"""The log's level changes while lines are written, and what is below it costs next to nothing."""

from __future__ import annotations

import json
from collections import Counter
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.base.logs import LEVELS, Threshold, make_log
from kproxy.runtime import connection_view
from kproxy.runtime.capacity import LogThrottle


def test_the_level_changes_while_lines_are_written() -> None:
    """Of loggers that were bound before, too; who asks whether a line is wanted hears the same, and a line that is not
    costs none of what makes one."""
    out, threshold = StringIO(), Threshold("warning")
    log = make_log("json", threshold, out)
    bound = log.bind(worker=1)
    wanted = {"debug": {"debug", "info", "warning", "error"}, "info": {"info", "warning", "error"},
              "warning": {"warning", "error"}, "error": {"error"}}  # fmt: skip
    for level in ("warning", "debug", "error", "info"):
        threshold.use(level)
        out.seek(0)
        out.truncate()
        for logger in (log, bound):
            for method in wanted["debug"]:
                assert logger.is_enabled_for(LEVELS[method]) is (method in wanted[level])
                getattr(logger, method)("said", of=method)
        lines = [json.loads(line) for line in out.getvalue().splitlines()]
        assert Counter(line["of"] for line in lines) == dict.fromkeys(wanted[level], 2)
        assert all(line["level"] == line["of"] for line in lines)


def test_a_quiet_end_of_a_connection_is_described_only_where_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that leaves is the usual end, and a line about it is of level debug."""
    described: list[object] = []
    monkeypatch.setattr(connection_view, "describe", lambda connection: described.append(connection) or {})
    connection: Any = SimpleNamespace(cause="client_closed", message="", since=0.0)
    assert connection.cause in connection_view.QUIET
    out, threshold = StringIO(), Threshold("info")
    log = make_log("json", threshold, out)
    connection_view.report_end(connection, 1.0, log, LogThrottle(log))
    assert (described, out.getvalue()) == ([], "")
    threshold.use("debug")
    connection_view.report_end(connection, 1.0, log, LogThrottle(log))
    assert described == [connection]
    assert json.loads(out.getvalue())["cause"] == "client_closed"
