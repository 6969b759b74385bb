"""mask: masked fields of records, such as personal data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, JsonValue, PrivateAttr, ValidationInfo

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.cooperative import yielding
from kproxy.base.named_file import read_named, reason
from kproxy.protocol.records.spans import EntrySpans
from kproxy.rules.bodies import PartitionBody
from kproxy.rules.content.masks import FILL, NULL, Fixed, Hash, Keep, Mask
from kproxy.rules.content.record_masks import FieldPath, RecordMasks
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.kinds.base.content_rule import ChangeRecord, HidingEffect, HidingRule
from kproxy.rules.kinds.base.rule import Effect, Group
from kproxy.rules.select.match import Texts, text_test
from kproxy.rules.values.model import Model, Wrong, found, validate
from kproxy.rules.values.source import Source, to_value
from kproxy.rules.values.tls import files_of

MOST_FIELDS = 1000
MOST_TAG_LINES = 10_000
MOST_TAGS_FILE = 2 << 20
SHORTEST_KEY, LONGEST_KEY = 16, 1 << 16
MOST_TOPICS = 1000
"""Topics whose masks are kept compiled."""
Character = Annotated[str, Field(min_length=1, max_length=1)]
Characters = Annotated[int, Field(ge=0, le=1000)]


class ReadFile(str):
    """Path of a file that was read with the rule, with its content."""

    data: bytes
    tags: TagsFile

    __slots__ = ("data", "tags")


def read_file(name: str, most: int, info: ValidationInfo) -> ReadFile:
    """Return a file of the rule. Relative names start at the folder of the document. Raises ValueError."""
    files = files_of(info)
    path = files.folder / name
    try:
        data = read_named(path, most, files.guard)
    except OSError as error:
        raise ValueError(f'the file "{path}" cannot be read: {reason(error)}') from None
    read = ReadFile(path)
    read.data = data
    return read


def read_key(text: str, info: ValidationInfo) -> ReadFile:
    if not text.startswith("file:") or text == "file:":
        raise ValueError(f"expected file: and the name of a file with the key, got {found(text)}")
    key = read_file(text.removeprefix("file:"), LONGEST_KEY, info)
    key.data = key.data.removesuffix(b"\n").removesuffix(b"\r")
    if len(key.data) < SHORTEST_KEY:
        raise ValueError(f"expected a key of at least {SHORTEST_KEY} bytes, got {len(key.data)}")
    return key


class KeepOptions(Model):
    """Parts of a text that stay."""

    first: Characters = Field(default=0, description="characters at the start")
    last: Characters = Field(default=0, description="characters at the end")
    from_char: Character | None = Field(default=None, description="all from the last occurrence of this character on")
    to_char: Character | None = Field(default=None, description="all up to the first occurrence of this character")
    fill: Character = Field(default=FILL, description="character that is written three times for the rest")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if not raw.keys() & {"first", "last", "from_char", "to_char"}:
            yield (), "expected at least one of first, last, from_char and to_char"


class HashOptions(Model):
    """Key of a hash."""

    key: Annotated[str, AfterValidator(read_key)] = Field(
        description=f"file:NAME, a file with a secret of at least {SHORTEST_KEY} bytes"
    )


class MaskMethod(Model):
    """Method of a mask: one of these."""

    fixed: JsonValue = Field(default=None, description="value in the place of all others")
    keep: KeepOptions | None = Field(default=None, description="keep parts of a text")
    hash: HashOptions | None = Field(
        default=None, description="HMAC-SHA-256 with a secret key, as 32 hexadecimal digits: equal values stay equal"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if len(raw.keys() & {"fixed", "keep", "hash"}) != 1:
            yield (), "expected one of fixed, keep and hash"

    def mask(self) -> Mask:
        if self.keep is not None:
            keep = self.keep
            return Keep(keep.first, keep.last, keep.from_char, keep.to_char, keep.fill)
        if self.hash is not None:
            assert isinstance(self.hash.key, ReadFile)
            return Hash(self.hash.key.data)
        return Fixed(self.fixed)


def mask_of(method: MaskMethod | None) -> Mask:
    return NULL if method is None else method.mask()


class TagPlace(Model):
    """Fields with a tag, in the records of topics or in all values with a schema."""

    topic: Texts | None = Field(default=None, description="topics whose records have the fields")
    fields: Annotated[list[str], Field(min_length=1, max_length=MOST_FIELDS)] = Field(
        description="fields such as value.customer.email"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        if "topic" not in raw:
            yield (), 'expected "topic"'
        for index, text in enumerate(raw.get("fields") or ()):
            if (problem := wrong_path(text)) is not None:
                yield ("fields", index), problem


class TagsFile(Model):
    """File with the tags of fields."""

    tags: dict[str, list[TagPlace]] = Field(description="fields by tag")


def wrong_path(text: Any) -> str | None:
    """Return what is wrong with a field; None: nothing."""
    try:
        FieldPath.parse(text if isinstance(text, str) else "")
    except ValueError as error:
        return str(error)
    return None


def read_tags(name: str, info: ValidationInfo) -> ReadFile:
    read = read_file(name, MOST_TAGS_FILE, info)
    read.tags = tags_in(read)
    return read


def tags_in(file: ReadFile) -> TagsFile:
    """Return the tags of a file. Raises ValueError."""
    if (lines := file.data.count(b"\n")) > MOST_TAG_LINES:
        raise ValueError(f"expected at most {MOST_TAG_LINES} lines, got {lines}")
    source = Source(str(file), file.data)
    value = to_value(source) if source.is_yaml else None
    tags = validate(TagsFile, value, source) if source.is_yaml else None
    if tags is None or source.lines():
        raise ValueError("; ".join(source.lines()[:3]))
    return tags


PathMask = tuple[FieldPath, Mask, bool]
"""Path, its mask, and whether the mask applies to all leaf values of an array or object."""
Methods = Annotated[dict[str, MaskMethod | None], Field(max_length=MOST_FIELDS)]


class MaskRule(HidingRule):
    """Masks fields of records, such as personal data.

    `fields` are masked in all selected records, `tags` by the tags of fields in `tags_file`. Methods: `null`;
    `{fixed: …}`, a value; `{keep: …}`, parts of a text; `{hash: …}`, equal for equal values. In JSON, all other values
    keep their bytes. `keep` and `hash` write text also for numbers, and mask arrays and objects as a whole.

    Clients with an unknown principal get masked records. Records that cannot be read are withheld on fetch, and
    rejected on produce.
    """

    group: ClassVar[Group] = "record content"
    example: ClassVar[str] = """\
- name: mask personal data except for billing
  kind: mask
  match: {topic: [orders, customers]}
  not: {principal: billing}
  fields:
    value.customer.email: {keep: {first: 1, from_char: "@"}}
    value.customer.birthday: {fixed: "1900-01-01"}
    "value.notes[*].text": null
"""

    kind: Literal["mask"] = Field(description="kind of the rule")
    fields: Methods = Field(default={}, description="masks by field, such as value.customer.email, key or header.user")
    tags: Methods = Field(default={}, description="masks by tag; fields take precedence")
    tags_file: Annotated[str, AfterValidator(read_tags)] | None = Field(
        default=None, description="YAML file with the fields of each tag, reloaded on change"
    )
    require_tags: bool = Field(
        default=False, description="values of a topic without tags are unreadable; false: no masks by tag"
    )

    _fields: list[PathMask] = PrivateAttr(default_factory=list)
    _tagged: list[tuple[list[Callable[[str], bool]], list[PathMask]]] = PrivateAttr(default_factory=list)

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        yield from super().cross_check(raw)
        fields, tags = raw.get("fields"), raw.get("tags")
        if not fields and not tags:
            yield (), "expected fields or tags"
        if tags and "tags_file" not in raw:
            yield ("tags",), "expected tags_file with the fields of the tags"
        if not tags and (extra := raw.keys() & {"tags_file", "require_tags"}):
            yield (min(extra),), "expected tags with masks"
        for text, method in fields.items() if isinstance(fields, dict) else ():
            if (problem := wrong_path(text)) is not None:
                yield ("fields", text, "[key]"), problem
                continue
            path = FieldPath.parse(text)
            if path == ("value", ()) and (method is None or method == {"fixed": None}):
                yield ("fields", text), "expected a value, since a record without one is a tombstone"
            if path.part == "key" and raw.get("at") == "produce":
                yield ("fields", text, "[key]"), "keys are masked on fetch only: they decide the partition"

    @cached_property
    def content(self) -> str:
        """Return the rule as JSON, with the digests of its files, so that it changes with them."""
        digests = (sha256(one.data).hexdigest() for one in self.read_files)
        return "\n".join((self.model_dump_json(by_alias=True), *digests))

    @property
    def read_files(self) -> list[ReadFile]:
        hashes = [one.hash.key for one in (*self.fields.values(), *self.tags.values()) if one is not None and one.hash]
        return [one for one in (*hashes, self.tags_file) if isinstance(one, ReadFile)]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self.read_files)

    def warnings(self) -> Iterable[str]:
        yield from super().warnings()
        if self.at == "produce":
            yield "the stored records are masked, and the original values are lost"
        if self.match is None or self.match.topic is None:
            yield "expected a topic in match: without one, the records of every topic are read"

    def start(self) -> Effect:
        return MaskEffect(self)

    def is_about(self, topic: str) -> bool:
        """Return True if the rule masks records of this topic for some client."""
        entity, no = Entity(topic), self.not_
        if no is not None and no.topic is not None and no.model_fields_set <= {"topic"} and no.holds_entity(entity):
            return False
        return self.match is None or self.match.topic is None or any(text_test(one)(topic) for one in self.match.topic)

    def model_post_init(self, context: Any, /) -> None:
        """Read the paths of all fields here, in the thread that reads the document."""
        super().model_post_init(context)
        self._fields = [(FieldPath.parse(text), mask_of(method), False) for text, method in self.fields.items()]
        tags = self.tags_file.tags.tags if isinstance(self.tags_file, ReadFile) else {}
        for tag, method in self.tags.items():
            mask = mask_of(method)
            for place in tags.get(tag, ()):
                paths = [(FieldPath.parse(text), mask, True) for text in place.fields]
                self._tagged.append(([text_test(text) for text in place.topic or ()], paths))

    def masks_of(self, topic: str | None) -> RecordMasks:
        """Return the masks of a topic, compiled again for each call. A topic with an unknown name has the masks of all
        tags."""
        tagged: list[PathMask] = []
        for tests, paths in yielding(self._tagged):
            if topic is None or any(test(topic) for test in tests):
                tagged += paths
        lacks_tags = self.require_tags and not tagged
        return RecordMasks(yielding((*self._fields, *tagged)), lacks_tags=lacks_tags, form=self.format)


class MaskEffect(HidingEffect):
    """Effect with the compiled masks of each topic."""

    def __init__(self, rule: MaskRule) -> None:
        super().__init__(rule)
        self.topic_masks = TopicMasks(rule)

    def changer(self, exchange: Exchange, place: PartitionBody) -> Callable[[EntrySpans], ChangeRecord]:
        masks, decoder = self.topic_masks.of(place.entity.topic), exchange.connection.decoder
        return lambda spans: lambda span: masks.edit(spans, span, decoder)


class TopicMasks:
    """Masks of a rule for each topic."""

    def __init__(self, rule: MaskRule) -> None:
        self.rule = rule
        self.by_topic: BoundedMap[str | None, RecordMasks] = BoundedMap(MOST_TOPICS)

    def of(self, topic: str | None) -> RecordMasks:
        """Return the masks of a topic. A topic with an unknown name has the masks of all tags."""
        if topic not in self.by_topic:
            self.by_topic[topic] = self.rule.masks_of(topic)
        return self.by_topic[topic]
