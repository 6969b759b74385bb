"""prefix: a tenant's part of the cluster, by prefix of names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.kinds.base.name_rule import NameRule
from kproxy.rules.kinds.base.rule import VisiblePart
from kproxy.rules.names.composed import AnyLayer
from kproxy.rules.names.layer import GROUP, NAMESPACES, TOPIC, TRANSACTIONAL_ID, Namespace, PrefixLayer
from kproxy.rules.values.model import KEY, Wrong

CHOICES = {"topics": TOPIC, "groups": GROUP, "transactional_ids": TRANSACTIONAL_ID}


class PrefixRule(NameRule):
    """Puts a prefix in front of all names of a tenant, which sees and reaches nothing without it.

    Topics, groups and transactional ids of others are not listed, and cannot be reached by name, by topic id, by a
    regular expression or by asking for all. To these clients Kafka's internal topics do not exist.
    """

    group = "names"
    needs: ClassVar[tuple[VisiblePart, ...]] = ("topic names", "topic ids", "group ids", "transactional ids")
    example: ClassVar[str] = """\
- name: tenant a lives in its own part of the cluster
  kind: prefix
  match: {listener: tenant-a}
  prefix: tenant-a.
"""

    kind: Literal["prefix"] = Field(description="kind of the rule")
    prefix: str = Field(description="prefix on the broker side; clients never see it")
    topics: bool = Field(default=True, description="add the prefix to topics")
    groups: bool = Field(default=True, description="add the prefix to group ids")
    transactional_ids: bool = Field(default=True, description="add the prefix to transactional ids")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if all(raw.get(field, True) is False for field in CHOICES):
            yield ("prefix", KEY), f"the prefix is for nothing, {', '.join(CHOICES)} are all false"
        prefix = raw.get("prefix")
        if isinstance(prefix, str):
            problems = (
                _problem(prefix, space) for field, space in CHOICES.items() if raw.get(field, True) is not False
            )
            problem = next((one for one in problems if one is not None), None)
            if problem is not None:
                yield ("prefix",), f"the prefix {problem}"

    def layers(self) -> Iterator[tuple[Namespace, AnyLayer]]:
        chosen = [CHOICES[field] for field in CHOICES if getattr(self, field)]
        for space in NAMESPACES:
            if space in chosen:
                yield space, PrefixLayer(space, self.prefix.encode())


def _problem(prefix: str, space: Namespace) -> str | None:
    if "*" in prefix:
        return f'"{prefix}" holds "*", a prefix is literal text'
    if prefix in (".", ".."):
        return None
    if len(prefix.encode()) >= space.longest:
        return f"has {len(prefix)} characters and leaves none for a {space.noun}, which has at most {space.longest}"
    internal = next((name.decode() for name in sorted(space.internal) if name.startswith(prefix.encode())), None)
    if prefix and internal is not None:
        return f'"{prefix}" is the beginning of the internal topic {internal}, which would become visible'
    return space.problem(prefix)
