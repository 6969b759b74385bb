"""ACLs that would hold for what is denied though they do not name it."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.tools.rehearse.dialogue import Dialogue, request, response

CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS = 30, 31, 29
TOPIC, GROUP, ANY = 2, 3, 1
LITERAL, PREFIXED, MATCH, ANY_PATTERN = 3, 4, 2, 1
REST = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
FILTER = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}


def made(pattern: int, name: str, kind: int = TOPIC) -> bytes:
    one = {"resource_type": kind, "resource_name": name, "resource_pattern_type": pattern, **REST}
    return request(CREATE_ACLS, 3, 1, creations=[one])


def deleted(pattern: int, name: str | None, kind: int = TOPIC) -> bytes:
    one = {"resource_type_filter": kind, "resource_name_filter": name, "pattern_type_filter": pattern, **FILTER}
    return request(DELETE_ACLS, 3, 1, filters=[one])


REFUSED = [
    made(LITERAL, "secret.x"), made(PREFIXED, "secret."), made(PREFIXED, "s"), made(PREFIXED, "secret.x.y"),
    made(LITERAL, "*"), deleted(LITERAL, "secret.x"), deleted(PREFIXED, "sec"), deleted(LITERAL, None),
    deleted(ANY_PATTERN, None, ANY), deleted(MATCH, "open.y"), deleted(ANY_PATTERN, "open.y"), deleted(LITERAL, "*"),
    deleted(LITERAL, "secret.x", ANY),
]  # fmt: skip
ALLOWED = [
    made(LITERAL, "open.y"), made(PREFIXED, "open."), made(LITERAL, "secret.x", GROUP), made(PREFIXED, "secret", GROUP),
    deleted(LITERAL, "open.y"), deleted(PREFIXED, "open"), deleted(ANY_PATTERN, None, GROUP),
    deleted(LITERAL, "open.y", ANY),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["deny", "read_only"])
@pytest.mark.parametrize("pattern", ["secret*", "/sec[r]et.*/"])
def test_an_acl_holds_for_more_than_it_names(kind: str, pattern: str) -> None:
    """Prefixes, wildcards and filters that may hold for a forbidden topic are refused; what cannot, passes."""
    written = f"rules: [{{name: r, kind: {kind}, match: {{topic: '{pattern}'}}}}]"

    assert [Dialogue(written).client(frame).to_broker for frame in REFUSED] == [b""] * len(REFUSED)
    if "/" not in pattern:
        assert [Dialogue(written).client(frame).to_broker for frame in ALLOWED] == ALLOWED


@pytest.mark.parametrize(
    ("name", "refused"), [("secret", True), ("secret.x", True), ("secret.xy", False), ("o", False)]
)
def test_an_exact_name_is_covered_by_its_beginnings(name: str, refused: bool) -> None:
    """A prefix longer than the name is another's."""
    written = "rules: [{name: r, kind: deny, match: {topic: secret.x}}]"

    assert (Dialogue(written).client(made(PREFIXED, name)).to_broker == b"") == refused


@pytest.mark.parametrize("kind", ["deny", "read_only"])
@pytest.mark.parametrize(("name", "type_", "passes"), [
    ("secret.x", TOPIC, False), ("*", TOPIC, False), (None, TOPIC, False), (None, ANY, False), ("secret.x", ANY, False),
    ("open.y", TOPIC, True), ("open.y", ANY, True), ("*", GROUP, True), (None, GROUP, True),
])  # fmt: skip
def test_versions_without_patterns_mean_names_and_all(kind: str, name: str | None, type_: int, passes: bool) -> None:
    """CreateAcls 0 and DeleteAcls 0 know one name, `*` for all of them, and no name for whichever."""
    written = f"rules: [{{name: r, kind: {kind}, match: {{topic: 'secret*'}}}}]"
    one = {"resource_type_filter": type_, "resource_name_filter": name, **FILTER}
    frames = [request(DELETE_ACLS, 0, 1, filters=[one])]
    if name is not None and type_ != ANY:
        made_one = {"resource_type": type_, "resource_name": name, **REST}
        frames.append(request(CREATE_ACLS, 0, 1, creations=[made_one]))

    assert [Dialogue(written).client(one).to_broker for one in frames] == [one if passes else b"" for one in frames]


def test_all_acls_may_be_described() -> None:
    """That only lists, and what is forbidden is left out of the list."""
    body: dict[str, Any] = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, **FILTER}
    frame = request(DESCRIBE_ACLS, 3, 1, **body)
    written = 'rules: [{name: r, kind: deny, match: {topic: "secret*"}}]'

    assert Dialogue(written).client(frame).to_broker == frame


@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED])
def test_an_acl_for_what_begins_so_is_not_listed_either(pattern: int) -> None:
    """Its name is one that the rule forbids, whichever way it is meant."""
    acl = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    said = [
        {"resource_type": TOPIC, "resource_name": name, "pattern_type": pattern, "acls": [acl]}
        for name in ("secret.x", "open.y", "*")
    ]
    body = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, **FILTER}
    talk = Dialogue('rules: [{name: r, kind: deny, match: {topic: "secret*"}}]')
    talk.client(request(DESCRIBE_ACLS, 3, 1, **body)).broker(response(DESCRIBE_ACLS, 3, 1, resources=said))
    (answer,) = talk.responses((DESCRIBE_ACLS, 3))

    assert [one["resource_name"] for one in answer.body["resources"]] == ["open.y", "*"]
