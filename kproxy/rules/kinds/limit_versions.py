"""limit_versions: which APIs, and which versions of them, clients may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import API_VERSIONS, PRODUCE
from kproxy.protocol.table.releases import parse_release, supported
from kproxy.rules.kinds.base.rule import Rule, VisiblePart
from kproxy.rules.select.selected import ApiNames, api_keys, keys_of
from kproxy.rules.values.model import KEY, Wrong
from kproxy.rules.values.quantities import LARGEST, OneRange, Range, parse_range

Span = tuple[int, int]
"""First and last version, inclusive. If the first is above the last, no version is left."""

NOTHING: Span = (0, -1)


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit of one rule, by API key. `others`: whether APIs that are not in `spans` may be used in any version."""

    rule: str
    spans: Mapping[int, Span]
    others: bool = True

    def span(self, key: int) -> Span | None:
        """Return the versions that this rule leaves of an API; None: all of it."""
        return self.spans.get(key, None if self.others else NOTHING)


@dataclass(frozen=True, slots=True)
class VersionLimits:
    """Combined limits of several rules."""

    limits: tuple[Limit, ...]

    def span(self, key: int) -> Span | None:
        """Return the versions that are left of an API; None: not limited."""
        spans = [span for limit in self.limits if (span := limit.span(key)) is not None]
        return (max(first for first, _ in spans), min(last for _, last in spans)) if spans else None

    def refusal(self, key: int, version: int) -> str:
        """Return why a frame of this version is stopped, with the first rule that is against it; empty: it may pass."""
        for limit in self.limits:
            span = limit.span(key)
            if span is not None and not span[0] <= version <= span[1]:
                name = schema.load(key).name if key in schema.paths() else f"api key {key}"
                if span[0] > span[1]:
                    return f'{name} is hidden by the rule "{limit.rule}"'
                return f'{name} {version}: the rule "{limit.rule}" allows {spelled(span)}'
        return ""


def spelled(span: Span) -> str:
    """Return a span in words: `0-11`, `9`, `4 and newer`, `none`."""
    first, last = span
    if first > last:
        return "none"
    if last >= 32767:
        return f"{first} and newer"
    return f"{first}" if first == last else f"{first}-{last}"


class LimitVersions(Rule):
    """Limits the APIs and versions that clients see and use, as if the brokers were older.

    ApiVersions responses contain the versions that the broker and all matching rules allow. A frame of another version
    closes the connection, as on a broker.
    """

    group = "addresses and versions"
    needs: ClassVar[tuple[VisiblePart, ...]] = ("api versions",)
    example: ClassVar[str] = """\
- name: the team's oldest brokers
  kind: limit_versions
  kafka: "2.8"
  apis: {Fetch: 4-11, Metadata: "<=9"}
  hide: [DeleteTopics, "*Acls"]
"""

    kind: Literal["limit_versions"] = Field(description="kind of the rule")
    apis: dict[str | int, OneRange] | None = Field(
        default=None,
        min_length=1,
        description="API: versions that clients may use, such as 0-11, 9 (this one only), <=9 or >=4",
    )
    hide: ApiNames | None = Field(
        default=None, description="APIs that clients must not see, by name (ShareFetch), glob (Share*) or number"
    )
    kafka: Annotated[str, AfterValidator(parse_release)] | None = Field(
        default=None, description="keep only APIs and versions of this Kafka release, such as 2.8"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        apis, hide = raw.get("apis"), _hidden(raw.get("hide"))
        release = _release(raw.get("kafka"))
        if all(raw.get(field) is None for field in ("apis", "hide", "kafka")):
            yield (), "nothing is limited, at least one of apis, hide and kafka is needed"
        if API_VERSIONS in hide:
            yield (
                ("hide",),
                "ApiVersions cannot be hidden, because clients need it; write apis: {ApiVersions: 0-3}",
            )
        if isinstance(apis, dict):
            yield from _check_apis(apis, hide, release)

    @property
    def limit(self) -> Limit:
        """Return the spans of versions that it leaves, by API key."""
        spans: dict[int, Span] = {}
        if self.kafka is not None:
            spans |= supported(self.kafka)
            if PRODUCE in spans:  # brokers list Produce from 0 although they have removed it (KAFKA-18659)
                spans[PRODUCE] = 0, spans[PRODUCE][1]
        for name, span in (self.apis or {}).items():
            (key,) = keys_of(name)
            first, last = spans.get(key, (0, span[1]) if self.kafka is None else NOTHING)
            spans[key] = max(first, span[0]), min(last, span[1])
        spans |= dict.fromkeys(api_keys(self.hide or []), NOTHING)
        return Limit(self.name, spans, others=self.kafka is None)


def _hidden(value: Any) -> frozenset[int]:
    """Return the keys in a valid `hide`. Its own type reports errors."""
    try:
        return api_keys(value if isinstance(value, list) else [] if value is None else [value])
    except (ValueError, AttributeError, TypeError):
        return frozenset()


def _release(value: Any) -> str | None:
    try:
        return parse_release(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _check_apis(apis: dict[Any, Any], hide: frozenset[int], release: str | None) -> Iterator[Wrong]:
    first: dict[int, Any] = {}
    for name, versions in apis.items():
        try:
            keys = keys_of(name)
        except ValueError as error:
            yield ("apis", name, KEY), str(error)
            continue
        if len(keys) > 1:
            yield ("apis", name, KEY), f'expected one API, got {len(keys)} APIs by "{name}"'
            continue
        (key,) = keys
        if key in first:
            yield ("apis", name, KEY), f'"{name}" and "{first[key]}" are the same API'
        elif key in hide:
            yield ("apis", name, KEY), f'"{name}" is hidden by this same rule'
        first[key] = name
        try:
            span = parse_range(versions)
        except ValueError:
            continue  # reported by the field's own type
        for message in _check_span(schema.load(key), span, release):
            yield ("apis", name), message


def _check_span(api: schema.Api, span: Range, release: str | None) -> Iterator[str]:
    has = api.versions.first, api.versions.last
    if span[0] > has[1] or has[1] < span[1] < LARGEST or span[1] < has[0]:
        yield f"expected versions {spelled(has)} of {api.name}, got {span}"
    elif api.key == API_VERSIONS and span[0] > 0:
        yield "expected version 0 of ApiVersions, because clients fall back to it (KIP-511)"
    elif release is not None:
        have = supported(release).get(api.key, NOTHING)
        if max(have[0], span[0]) > min(have[1], span[1]):
            yield (
                f"no version of {api.name} left: brokers of Kafka {release} have {spelled(have)}, got {span}; "
                "if that is meant, hide it"
            )
