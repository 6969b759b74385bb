"""Exchanges in a few words: what they are about, by the columns of their request events."""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.record.filter.view import ViewedEvent


def topics(data: ViewedEvent, most: int | None = None) -> str:
    """Return the topics and partitions of a request, `orders[0,3] bills[1]`; if it has none, its group or resources.

    These look like `group:billing`. `most`: partitions shown of each topic.
    """
    found = " ".join(_topics(data, most))
    if found:
        return found
    if data.get("group"):
        return f"group:{data['group']}"
    return " ".join(f"{one.get('type')}:{one.get('name')}" for one in data.get("resources") or ())


def _topics(data: ViewedEvent, most: int | None) -> Iterator[str]:
    for topic in data.get("topics") or ():
        numbers = [str(one["partition"]) for one in topic.get("partitions") or () if "partition" in one]
        if most is not None and len(numbers) > most:
            numbers = [*numbers[:most], f"…{len(numbers) - most} more"]
        name = topic.get("topic") or topic.get("topic_id") or "?"
        yield f"{name}[{','.join(numbers)}]" if numbers else name
    if data.get("omitted_topics") or data.get("omitted_partitions"):
        yield "…"


def software(data: ViewedEvent) -> str | None:
    """Return name and version of the client's library, None where it is not known."""
    return " ".join(filter(None, (data.get("software_name"), data.get("software_version")))) or None


def errors(data: ViewedEvent) -> list[str]:
    return list(data.get("errors") or ([data["error"]] if data.get("error") else []))
