"""Where in a response an error stands: at its top, or at each entity."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from kproxy.wire.shapes import Shape, shape

Place = Literal["top", "entity"]

OF_THE_REQUEST = frozenset((
    14, 15, 16,  # COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
    24, 69, 113,  # INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH
    22, 25, 27,  # ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS
    30, 31, 53,  # GROUP_, CLUSTER_, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    35, 41,  # UNSUPPORTED_VERSION, NOT_CONTROLLER
    70, 71, 106, 122, 123, 133,  # what a fetch or share session can have
    129,  # REBOOTSTRAP_REQUIRED
))  # fmt: skip
"""Errors that brokers put at the top where a response has a place there as well as at each entity."""

REBOOTSTRAP_REQUIRED = 129
LEAVE_GROUP, UNKNOWN_MEMBER_ID = 13, 25


def has_top(form: Shape) -> bool:
    """Whether an error of the whole request has a place of its own, not only one at each entity."""
    return form.code is not None or form.whole == "first"


def has_place(form: Shape, place: Place) -> bool:
    """Whether the response can say an error there. What asks about one thing has the error of that at the top."""
    return form.carries if place == "entity" and form.request else has_top(form)


def usual_place(form: Shape, code: int) -> Place:
    """Where a broker puts this error."""
    if not form.carries:
        return "top"
    if (form.api.key, code) == (LEAVE_GROUP, UNKNOWN_MEMBER_ID):  # one member's, since KIP-345
        return "entity"
    if form.whole == "each" and code != REBOOTSTRAP_REQUIRED:  # the top of Metadata 13 is for that one (KIP-1102)
        return "entity"
    return "top" if code in OF_THE_REQUEST and has_top(form) else "entity"


def place_of(key: int, version: int, code: int, wanted: Place | None) -> Place | None:
    """Where this error goes; None: this version has no place for it."""
    form = shape(key, version)
    place = wanted or usual_place(form, code)
    return place if has_place(form, place) else None


def has_text(key: int, version: int, place: Place) -> bool:
    """Whether the response has a field for a text beside that error."""
    form = shape(key, version)
    levels = form.response[-1:] if place == "entity" and form.request else form.response[:1]
    return form.text is not None if form.code is not None and place == "top" else any(one.text for one in levels)


def fail_outermost(
    form: Shape, body: dict[str, Any], groups: Collection[str | None], code: int, message: str | None = None
) -> bool:
    """Put an error at the elements of the outermost array, in place: the top for each of several groups (KIP-709).

    Only at those of these groups, at all of them if that is empty. Whether there was any.
    """
    level, *deeper = form.response
    failed = False
    for element in level.elements(body):
        if level.code is None or (groups and level.roles(element).get("group") not in groups):
            continue
        if deeper:
            element[deeper[0].array] = []
        element[level.code] = code
        if level.text is not None:
            element[level.text] = message
        failed = True
    return failed
