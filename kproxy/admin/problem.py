"""Refusals of the admin API, as JSON with a code that programs can rely on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from starlette.responses import JSONResponse

from kproxy.base.errors import (
    ConfigRefused,
    DocumentError,
    KproxyError,
    NoSuchRule,
    NotEverywhere,
    RuleInUse,
    plural,
)
from kproxy.base.terminal import printable

from .models import ErrorShown, FailureShown, MistakeShown

_PLACE = re.compile(r"(.*?:\d+:\d+): (.*)", re.DOTALL)


class Problem(Exception):
    """Refused request. `mistakes` are `file:line:column: message` lines, or (where, message) pairs."""

    def __init__(
        self, status: int, code: str, message: str, mistakes: Sequence[str | tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.mistakes, self.headers = tuple(mistakes), headers


class MemberGone(Problem):
    """Worker process that ended before it responded."""


CODES: Mapping[int, Mapping[str, str]] = {
    401: {"unauthorized": "the request has no valid bearer token"},
    403: {
        "foreign_host": "the Host header names another machine, as it does after DNS rebinding",
        "foreign_origin": "the Origin header names another origin",
        "foreign_site": "Sec-Fetch-Site names another site",
        "no_certificate": "the webhook requires a client certificate, and the client sent none",
        "needs_token": "a config in the body requires a token of the admin address",
        "records_hidden": "the config or a rule hides the content of records",
        "read_only": "the token is read-only, and the operation changes something",
        "view_off": "the config disables the view",
    },
    404: {"not_found": "the path does not exist", "no_such_rule": "no rule has this name",
          "no_such_connection": "no open connection has this id",
          "no_such_capture": "no capture since the start has this name",
          "no_such_source": "no open file has this id; it was closed, or its idle timeout has expired",
          "no_such_held": "no held frame has this id; for a minute the message reports how it ended",
          "no_such_exchange": "no exchange with this id was kept"},
    405: {"method_not_allowed": "the Allow header lists the allowed methods"},
    408: {"too_slow": "the body did not arrive in time, or the client disconnected"},
    409: {"rule_in_use": "the origin of the rule, or of the rule with the same name, does not allow the change",
          "not_counted": "the rule binds when connections open, and has no counters",
          "no_captures": "the config has no folder for captures",
          "capture_exists": "a file of this name exists; files are never overwritten",
          "capture_failed": "the file cannot be written",
          "capture_runs": "its file is incomplete: stop the capture first",
          "source_failed": "no space for the file, or for reading it",
          "too_many_captures": "the limit of running captures is reached",
          "needs_restart": "the config changes a setting that needs a restart; except_restart applies the others",
          "other_cluster": "a listener would lead to a cluster with another id",
          "unknown_cluster": "a listener would lead to other servers, and a cluster id is unknown",
          "no_config_file": "kproxy was started with flags, and has no config file to read again",
          "fixed_config": "the proxy is part of a program that has made its config",
          "ending": "kproxy is shutting down",
          "held_changed": "the held frame has another revision",
          "not_editable": "the held frame does not allow this change",
          "no_answer_due": "kproxy cannot give this answer in the broker's place",
          "not_sendable": "the kept bytes do not suffice to send the request again",
          "cannot_log_in": "its client had authenticated, and kproxy keeps no secrets",
          "not_let_in": "the listener refused kproxy's own connection",
          "confirm_first": "the request changes something: name its API in `confirm`"},
    410: {"exchange_gone": "the exchange was evicted"},
    413: {"too_large": "the body is longer than the limit"},
    415: {"unsupported_media_type": "the Content-Type is not supported"},
    422: {"invalid_document": "errors in the body, each with its line and column",
          "no_capture": "the body is not a capture, or is damaged",
          "invalid_query": "errors in the query or the path",
          "invalid_body": "errors in the body, each with its field",
          "invalid_edit": "errors in an edit, each with its path or byte"},
    429: {"too_many_listeners": "the limit of streams and waits is reached",
          "too_many_bodies": "the limit of bytes of all bodies is reached",
          "too_many_sent": "the limit of requests that are sent again at once is reached",
          "too_many_sources": "the limit of open files is reached",
          "too_many_answers": "the limit of bytes of all long responses is reached"},
    500: {"internal": "an error of kproxy; its log has details"},
    503: {"worker_gone": "the worker process for the request has ended, or does not respond",
          "not_everywhere": "a worker process could not apply the change, so nothing was changed",
          "too_many_connections": "the limit of connections to this address is reached"},
}  # fmt: skip
"""Codes of all refusals, with their meanings, by status."""


def problem_of(error: KproxyError) -> Problem:
    match error:
        case NoSuchRule():
            return Problem(404, "no_such_rule", str(error))
        case RuleInUse():
            return Problem(409, "rule_in_use", str(error))
        case DocumentError():
            count = len(error.mistakes)
            message = f"nothing was changed: {plural(count, 'mistake')}"
            return Problem(422, "invalid_document", message, error.mistakes)
        case ConfigRefused():
            return Problem(403 if error.code == "needs_token" else 409, error.code, str(error))
        case NotEverywhere():
            return Problem(503, "not_everywhere", str(error))
        case _:
            return Problem(500, "internal", str(error))


def answer(problem: Problem) -> JSONResponse:
    """Return `{"error": {"code", "message", "mistakes": [{"where", "message"}]}}`. Texts of users are escaped: lone
    surrogates cannot be encoded."""
    mistakes = [mistake_of(line) for line in problem.mistakes]
    shown = FailureShown(error=ErrorShown(code=problem.code, message=printable(problem.message), mistakes=mistakes))
    return JSONResponse(shown.model_dump(mode="json"), problem.status, problem.headers)


def mistake_of(line: str | tuple[str, str]) -> MistakeShown:
    """Split a `file:line:column: message` line."""
    if not isinstance(line, str):
        return MistakeShown(where=printable(line[0]), message=printable(line[1]))
    match = _PLACE.fullmatch(printable(line))
    return MistakeShown(where=match[1], message=match[2]) if match else MistakeShown(where="", message=printable(line))
