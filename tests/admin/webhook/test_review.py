"""AdmissionReviews as they come: what is none is refused in words, and all else gets an answer with its own uid."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse

from kproxy.admin.limits import LONGEST_BODY
from kproxy.admin.problem import Problem, answer
from kproxy.admin.webhook.annotations import SidecarOptions
from kproxy.admin.webhook.server import KIND, LONGEST_REASON, VERSION, answer_review, log_outcome
from kproxy.base.terminal import in_line
from tests.support.admission import review_of, review_with
from tests.support.stretches import BY_COST, Cost

DEFAULTS = SidecarOptions("kproxy:0.1.0")


def changed(**request: Any) -> bytes:
    review = review_of()
    review["request"] |= request
    return json.dumps(review).encode()


def problem(data: bytes) -> Problem:
    with pytest.raises(Problem) as raised:
        answer_review(data, DEFAULTS)
    return raised.value


def lines(found: Problem) -> list[str]:
    return [one if isinstance(one, str) else f"{one[0]}: {one[1]}" for one in found.mistakes]


HOSTILE = [
    (b"", "<api>:1:1: not JSON: expecting value"),
    (b"{", "<api>:1:2: not JSON: expecting property name enclosed in double quotes"),
    (b'{"a": NaN}', "<api>:1:1: not JSON: expected a number of JSON, got NaN"),
    (b'{"kind": "\xff"}', "<api>:1:1: the document is not UTF-8: byte 0xff"),
    (b"\xef\xbb\xbf{}", "<api>:1:1: not JSON: unexpected UTF-8 BOM (decode using utf-8-sig)"),
    (b'{"request": {}, "a": 1, "a": 2}', '<api>:1:25: the key "a" is there twice, first in line 1'),
    (b'{"a": ' + b"9" * 5000 + b"}", "<api>:1:1: not JSON: Exceeds the limit (4300 digits)"),
    (b'{"a": ' + b"[" * 60 + b"]" * 60 + b"}", "<api>:1:56: nested 51 levels deep, the limit is 50"),
    (b'{"a": "' + b"x" * (1 << 21) + b'"}', "<api>:1:7: a key or value of more than 1048576 characters"),
]


@pytest.mark.parametrize(("data", "line"), HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_json_is_refused_at_its_place(data: bytes, line: str) -> None:
    """Not UTF-8, keys that are there twice, too deep, too long: each with line and column."""
    found = problem(data)
    assert found.status == 422 and found.code == "invalid_document"
    assert lines(found)[0].startswith(line)


@BY_COST
@pytest.mark.parametrize("data", [b"[" * 3_000_000, b'{"a":' * 600_000, b"[" + b"0," * 2_000_000 + b"0]"])
def test_review_of_many_or_deep_values_is_refused_early(data: bytes, cost: Cost) -> None:
    assert len(data) < LONGEST_BODY
    cost.check(lambda: problem(data), lines=500_000, seconds=1)
    found = problem(data)
    assert found.status == 422
    assert found.message == "more than 50000 values, or nested deeper than 100 times"


ENVELOPES: list[tuple[Any, list[str]]] = [
    (5, [": expected an AdmissionReview (mapping), got the number 5"]),
    ([], [": expected an AdmissionReview (mapping), got a list"]),
    ({}, ['apiVersion: expected "admission.k8s.io/v1", got nothing',
          'kind: expected "AdmissionReview", got nothing',
          "request: expected a mapping, got nothing"]),
    ({"apiVersion": "admission.k8s.io/v1beta1", "kind": KIND, "request": {"uid": "u", "kind": {}}},
     ['apiVersion: expected "admission.k8s.io/v1", got "admission.k8s.io/v1beta1"']),
    ({"apiVersion": VERSION, "kind": KIND, "request": {"uid": 5, "operation": [], "kind": {"kind": 1}}},
     ["request.uid: expected text, got the number 5", "request.operation: expected text, got a list",
      "request.uid: expected 1 to 256 characters, got 0", "request.kind.kind: expected text, got the number 1"]),
    ({"apiVersion": VERSION, "kind": KIND, "request": {"uid": "u" * 257, "kind": "Pod"}},
     ["request.uid: expected 1 to 256 characters, got 257", 'request.kind: expected a mapping, got "Pod"']),
]  # fmt: skip


@pytest.mark.parametrize(("document", "mistakes"), ENVELOPES, ids=range(len(ENVELOPES)))
def test_what_is_no_review_is_refused_with_all_mistakes(document: Any, mistakes: list[str]) -> None:
    """Kubernetes then does what failurePolicy says: it is not taken for a pod that may start."""
    found = problem(json.dumps(document).encode())
    assert found.status == 422 and found.code == "invalid_body"
    assert lines(found) == mistakes


def test_objects_that_are_no_pods_are_refused() -> None:
    """A configuration that sends others would let pods of theirs start without a sidecar, and nobody would see it."""
    deployment = answer_review(changed(kind={"group": "apps", "version": "v1", "kind": "Deployment"}), DEFAULTS).body()
    assert deployment["response"]["status"]["message"] == (
        'no kproxy sidecar: the webhook is for pods (v1 Pod), and was asked about "apps/v1 Deployment": its '
        "MutatingWebhookConfiguration has other rules"
    )
    part = answer_review(changed(subResource="ephemeralcontainers"), DEFAULTS).body()
    assert '"v1 Pod/ephemeralcontainers"' in part["response"]["status"]["message"]


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT", ""])
def test_a_pod_that_is_there_is_left_and_that_is_told(operation: str) -> None:
    """Its containers cannot be changed any more."""
    response = answer_review(changed(operation=operation), DEFAULTS).body()["response"]
    assert response["allowed"] is True and "patch" not in response
    assert response["warnings"] == [
        f'kproxy: a pod gets its sidecar when it is made; nothing was done at "{operation}"'
    ]


def test_the_answer_has_the_form_of_the_request() -> None:
    """Version, kind and uid are those that Kubernetes compares; a dry run is answered as any, since nothing is kept."""
    body = answer_review(json.dumps(review_of("job")).encode(), DEFAULTS).body()
    assert (body["apiVersion"], body["kind"]) == (VERSION, KIND)
    assert body["response"]["uid"] == review_of("job")["request"]["uid"]
    assert (body["response"]["allowed"], body["response"]["patchType"]) == (True, "JSONPatch")
    json.dumps(body)


def test_a_refusal_is_not_longer_than_an_event() -> None:
    """Whatever names the pod has chosen."""
    wrong = {f"{number:02}{'x' * 900}": "true" for number in range(30)}
    message = answer_review(review_with({"inject": "true", **wrong}), DEFAULTS).body()["response"]["status"]["message"]
    assert len(message) <= LONGEST_REASON + len("no kproxy sidecar: ")


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["apiVersion", "kind", "request", "uid", "object"]), inner, max_size=4),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_bytes_get_a_refusal_or_an_answer(data: bytes) -> None:
    """And no other error."""
    with suppress(Problem):
        answer_review(data, DEFAULTS).body()


HOSTILE_VALUES: list[Any] = [
    None, -1, 1e300, "\ud800", "\x1b]0;x\x07\u202e", [], [None, "\u202e"], {}, {"\x1b": "\x1b", "name": "\u202e"},
]  # fmt: skip


def places_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every path in a document."""
    yield path
    if isinstance(value, dict):
        for name, part in value.items():
            yield from places_of(part, (*path, name))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from places_of(part, (*path, index))


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(document)
    if not path:
        return value
    there = made
    for part in path[:-1]:
        there = there[part]
    there[path[-1]] = value
    return made


def test_whatever_stands_at_whatever_place_gets_an_answer_that_can_be_sent() -> None:
    """An AdmissionReview, or a refusal in words: nothing is an error of the webhook's own, and nothing that is said has
    characters that command a terminal."""
    review = review_of("job")
    spec = review["request"]["object"]["spec"]
    spec |= {"volumes": [{"name": "tmp"}], "nodeSelector": {"kubernetes.io/os": "linux"}}
    spec["containers"][0]["ports"] = [{"containerPort": 80, "protocol": "TCP"}]
    for path in places_of(review):
        for value in HOSTILE_VALUES:
            data = json.dumps(with_value(review, path, value)).encode()
            try:
                decided = answer_review(data, DEFAULTS)
            except Problem as found:
                sent = answer(found)
                assert sent.status_code == 422
            else:
                sent = JSONResponse(decided.body())
                log_outcome(QUIET, decided)
            text = bytes(sent.body).decode()
            assert in_line(text) == text, (path, value)


QUIET = structlog.wrap_logger(None, processors=[lambda *given: drop()])


def drop() -> Any:
    raise structlog.DropEvent
