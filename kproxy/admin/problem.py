"""Refusals of the admin API, as JSON with a code that programs can rely on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from starlette.responses import JSONResponse

from kproxy.base.errors import ConfigRefused, DocumentError, KproxyError, NoSuchRule, NotEverywhere, RuleInUse
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
    401: {"unauthorized": "a bearer token is needed"},
    403: {
        "foreign_host": "the Host header names another machine, as it does after DNS rebinding",
        "foreign_origin": "a web page of another origin has sent this",
        "foreign_site": "a web page of another site has sent this, as the browser says in Sec-Fetch-Site",
        "no_certificate": "the webhook asks for a certificate, and the client has shown none",
        "needs_token": "a config in the body is taken only where the admin address asks for a token",
        "records_hidden": "the config shows nothing of what users wrote",
        "read_only": "the token is for reading, and this changes something",
        "view_off": "the config turns the view off",
    },
    404: {"not_found": "there is no such page", "no_such_rule": "there is no rule of that name",
          "no_such_connection": "there is no connection of that number",
          "no_such_capture": "no capture of that name was made since the start",
          "no_such_source": "no file of that number is open: it was closed, or its hour is over",
          "no_such_held": "no such frame is held; for a minute it is told how it went",
          "no_such_exchange": "no exchange of that id was kept"},
    405: {"method_not_allowed": "the Allow header says what is"},
    408: {"too_slow": "the body did not come in time, or the client went away"},
    409: {"rule_in_use": "where the rule or its namesake comes from does not allow that",
          "not_counted": "the rule binds when connections open, and counts nothing",
          "no_captures": "the config names no folder for captures",
          "capture_exists": "there is a file of that name, and none is overwritten",
          "capture_failed": "the file cannot be written",
          "capture_runs": "its file is not whole yet: stop it first",
          "source_failed": "no room for the file, or none to read it in",
          "too_many_captures": "as many run as may at a time",
          "needs_restart": "the config changes something that needs a restart; all else can be applied without",
          "other_cluster": "a listener would lead to a cluster with another id",
          "unknown_cluster": "a listener would lead to other servers, and a cluster id is unknown",
          "no_config_file": "kproxy was started with flags, and has no config file to read again",
          "fixed_config": "the proxy is part of a program that has made its config",
          "ending": "kproxy is going to end, and takes no other config",
          "held_changed": "the held frame is not what was looked at any more",
          "not_editable": "the held frame cannot be changed so",
          "no_answer_due": "kproxy cannot give this answer in the broker's place",
          "not_sendable": "what was kept of the exchange is not enough to send its request again",
          "cannot_log_in": "its client had logged in, and secrets are in nothing that is kept",
          "not_let_in": "the listener does not let kproxy's own connection in",
          "confirm_first": "the request changes something: say its API in the field confirm"},
    410: {"exchange_gone": "the exchange was kept, and had to go for others"},
    413: {"too_large": "the body is longer than is taken"},
    415: {"unsupported_media_type": "the Content-Type is none of those that are taken"},
    422: {"invalid_document": "mistakes in the body, each with its line and column",
          "no_capture": "the body is no capture, or a damaged one",
          "invalid_query": "mistakes in the query or the path",
          "invalid_body": "mistakes in the body, each with its field",
          "invalid_edit": "mistakes in an edit, each with its path or byte"},
    429: {"too_many_listeners": "as many listen to what passes as may at a time",
          "too_many_bodies": "as much of bodies is there as may be at a time",
          "too_many_sent": "as many requests are being sent again as may at a time",
          "too_many_sources": "as many files are open as may at a time",
          "too_many_answers": "as much is being sent of long lists as may at a time"},
    500: {"internal": "a mistake of kproxy's own; its log says more"},
    503: {"worker_gone": "the process that held the frame has ended",
          "not_everywhere": "a worker process could not take it in, and nothing was changed",
          "too_many_connections": "as many connections are open to this address as may at a time"},
}  # fmt: skip
"""By status: every code there is, and what it means."""


def problem_of(error: KproxyError) -> Problem:
    """Convert an exception of kproxy to a Problem."""
    match error:
        case NoSuchRule():
            return Problem(404, "no_such_rule", str(error))
        case RuleInUse():
            return Problem(409, "rule_in_use", str(error))
        case DocumentError():
            count = len(error.mistakes)
            message = f"nothing was changed: {count} mistake{'s' if count > 1 else ''}"
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
