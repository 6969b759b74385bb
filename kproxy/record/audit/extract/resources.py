"""Resources that a request is about beside topics: groups, configs, ACLs, users, quotas, features, …

Strategy. The elements of the request's innermost level find their answers as the core does when it makes some: by their
keys, or by their place. Where topics stand inside of several groups or transactions, those are the resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kproxy.protocol.table.api_keys import (
    CREATE_DELEGATION_TOKEN,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DESCRIBE_ACLS,
    END_TXN,
    FIND_COORDINATOR,
    SASL_HANDSHAKE,
    UNREGISTER_BROKER,
)
from kproxy.protocol.table.errors import error_name
from kproxy.protocol.table.shapes import Level, Shape
from kproxy.record.audit.lines import plain
from kproxy.rules.entity import CLIENT_METRICS
from kproxy.session.respond.answer import Handle, handles_of

from .details import ACL_RESOURCES, CONFIG_RESOURCES, COORDINATORS, DETAILS, MessageElement, word

ResourceRow = dict[str, Any]
NOTHING: MessageElement = {}
OF_TOPICS = frozenset(("topic", "topic_id"))
NAMES = {"dir": "log_dir", "member": "member", "instance": "member"}
"""Roles whose resource type is another word."""
TOPICS_WITH_DETAIL = frozenset((CREATE_TOPICS, CREATE_PARTITIONS))
"""CreateTopics and CreatePartitions: what was asked for of a topic stands in its resource."""


def type_and_name(roles: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the resource's type and name for an element with these roles; the first role decides."""
    if "resource_name" in roles:
        name = roles["resource_name"]
        for role in ("acl_type", "granted_acl"):
            if role in roles:
                return word(ACL_RESOURCES, roles[role]), name
        return word(CONFIG_RESOURCES, roles.get("config_type", CLIENT_METRICS)), name
    if "coordinator_key" in roles:
        return word(COORDINATORS, roles.get("key_type", 0)), roles["coordinator_key"]
    if "quota" in roles:
        parts = roles["quota"] or ()
        return "quota", ", ".join(f"{part['entity_type']} {part['entity_name'] or '(default)'}" for part in parts)
    role, value = next(iter(roles.items()))
    return NAMES.get(role, role), None if value is None else str(value)


class ApiResources:
    """Extractor of the resources of one API and version.

    `requested`, `answered`: the levels at which they stand in the request and the response; None: there is none.
    """

    def __init__(self, form: Shape) -> None:
        self.form = form
        self.detail = DETAILS.get(form.api.key)
        self.requested = resource_level(form.request, form.api.key)
        self.answered = resource_level(form.response, form.api.key)
        # a single group around topics has columns of its own
        self.around = self.requested is not None and self.requested is not form.request[-1]
        self.single = self.requested is None and form.api.key in SINGLE

    def tell(
        self, request: MessageElement, response: MessageElement | None, top_code: int | None, most: int
    ) -> dict[str, Any]:
        """Return the columns about resources.

        `top_code`: the error code at the top of the response, None: there was none.
        """
        other = OTHERS.get(self.form.api.key)
        if other is not None:
            return {"resources": [{name: value for name, value in other(request).items() if value is not None}]}
        if self.requested is None and not self.single:
            return {}
        rows: list[ResourceRow] = []
        count = 0
        for roles, requested, answered in self.pairs(request, response or NOTHING):
            count += 1
            if count <= most:
                rows.append(self.row(roles, requested, answered, top_code))
        return {} if self.around and count == 1 else counted(rows, count, most)

    def pairs(
        self, request: MessageElement, response: MessageElement
    ) -> Iterator[tuple[Mapping[str, Any], MessageElement, MessageElement]]:
        """Yield (roles, element of the request, its answer) of each resource."""
        top = {role: request.get(field) for role, field in self.form.top}
        if self.single:
            yield top, request, response
        if self.requested is None:
            return
        answers = self.answers(response)
        for number, element in enumerate(self.requested.elements(request)):
            own = self.requested.roles(element)
            handles = ((number,),) if self.form.positional else self.handles(own)
            answer = next((answers[handle] for handle in handles if handle in answers), NOTHING)
            yield {**own, **top}, element if isinstance(element, dict) else NOTHING, answer

    def handles(self, roles: Mapping[str, Any]) -> tuple[Handle, ...]:
        return handles_of(self.answered, roles) if self.answered is not None else ()

    def answers(self, response: MessageElement) -> dict[Handle, MessageElement]:
        if self.answered is None:
            return {}
        elements = self.answered.elements(response)
        if self.form.positional:
            return {(number,): element for number, element in enumerate(elements)}
        level = self.answered
        return {handle: element for element in elements for handle in handles_of(level, level.roles(element))}

    def row(
        self, roles: Mapping[str, Any], requested: MessageElement, answered: MessageElement, top_code: int | None
    ) -> ResourceRow:
        kind, name = type_and_name(roles)
        row: ResourceRow = {"type": kind}
        text = plain(name)
        if text is not None:
            row["name"] = text
        field = self.answered.code if self.answered is not None else None
        code = answered[field] if field is not None and field in answered else top_code
        if code:
            row["error"] = error_name(code)
        detail = plain(self.detail(requested, answered) if self.detail is not None else None)
        if detail is not None:
            row["detail"] = detail
        return row


def resource_level(levels: tuple[Level, ...], key: int) -> Level | None:
    """Return the outermost level if it is not one of topics, else None."""
    if not levels:
        return None
    roles = {role for role, _ in levels[0].keys}
    return None if roles & OF_TOPICS and key not in TOPICS_WITH_DETAIL else levels[0]


def counted(rows: list[ResourceRow], count: int, most: int) -> dict[str, Any]:
    data: dict[str, Any] = {"resources": rows} if rows else {}
    if count > most:
        data["omitted_resources"] = count - most
    return data


SINGLE = frozenset((FIND_COORDINATOR, DESCRIBE_ACLS))
"""APIs that ask about one resource, in fields at the top: FindCoordinator 0 to 3, DescribeAcls."""

ReadResource = Callable[[MessageElement], ResourceRow]


def mechanism(request: MessageElement) -> ResourceRow:
    return {"type": "mechanism", "name": plain(request["mechanism"])}


def end_of_transaction(request: MessageElement) -> ResourceRow:
    name = plain(request["transactional_id"])
    return {"type": "transactional_id", "name": name, "detail": "commit" if request["committed"] else "abort"}


def broker(request: MessageElement) -> ResourceRow:
    return {"type": "broker", "name": str(request["broker_id"])}


def token(request: MessageElement) -> ResourceRow:
    owner = plain(request.get("owner_principal_name"))
    return {"type": "delegation_token", "detail": None if owner is None else f"for {owner}"}


OTHERS: Mapping[int, ReadResource] = {
    SASL_HANDSHAKE: mechanism,
    END_TXN: end_of_transaction,
    CREATE_DELEGATION_TOKEN: token,
    UNREGISTER_BROKER: broker,
}
"""API key → the resource that a request is about which has no role in the table of shapes."""
