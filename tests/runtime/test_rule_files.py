"""What a look at rule files tells; that changes are found while a proxy runs is tested with whole proxies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio

from kproxy.base.errors import DocumentError, NotEverywhere
from kproxy.rules.document.store import RuleStore
from kproxy.runtime import rule_files
from kproxy.runtime.rule_files import RuleFiles, read_versions


def test_a_look_tells_versions_of_files_apart(tmp_path: Path) -> None:
    """Content that was written, a file that was renamed over it, a time that was set back."""
    file = tmp_path / "a.yaml"
    file.write_text("rules: []")
    seen = [read_versions([str(tmp_path)])]
    file.write_text("rules: [] ")
    seen.append(read_versions([str(tmp_path)]))
    (tmp_path / ".new").write_text("rules: [] ")
    (tmp_path / ".new").rename(file)
    seen.append(read_versions([str(tmp_path)]))
    os.utime(file, (0, 0))
    seen.append(read_versions([str(tmp_path)]))

    assert len(set(seen)) == 4
    assert read_versions([str(tmp_path)]) == seen[-1]


def test_a_look_goes_through_links(tmp_path: Path) -> None:
    """A folder that a link in the path leads to may be another one than before."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text("rules: []")
    link = tmp_path / "link"
    link.symlink_to("one")
    before = read_versions([str(link)])
    link.unlink()
    link.symlink_to("two")

    assert read_versions([str(link)]) != before
    assert [name for name, _ in before] == [str(link / "a.yaml")]


def test_what_is_missing_is_seen_as_missing(tmp_path: Path) -> None:
    """And reading it is a mistake of its document."""
    path = str(tmp_path / "none.yaml")

    assert read_versions([path]) == ((path, None),)
    assert [document.source.lines() for document in RuleFiles([path], structlog.get_logger()).first()] == [
        [f"{path}:1:1: the file cannot be read: no such file or directory"]
    ]


class Keeper:
    """Refuses the first load for this reason. `enough` is set when there have been so many."""

    def __init__(self, reason: Exception, enough: int) -> None:
        self.reason, self.most, self.loads = reason, enough, 0
        self.enough = trio.Event()

    async def load_everywhere(self, origin: str, operation: Any) -> None:
        self.loads += 1
        if self.loads == self.most:
            self.enough.set()
        if self.loads == 1:
            raise self.reason


@pytest.mark.parametrize(("reason", "loads"), [(NotEverywhere("worker 1 hangs"), 2), (DocumentError(["a mistake"]), 1)])
@pytest.mark.trio
async def test_what_a_worker_could_not_take_in_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: Exception, loads: int
) -> None:
    """It is not the file that was wrong. A mistake in it is told once."""
    monkeypatch.setattr(rule_files, "INTERVAL", 0.01)
    monkeypatch.setattr(rule_files, "SETTLE", 0.01)
    file = tmp_path / "a.yaml"
    file.write_text("rules: []")
    files, keeper = RuleFiles([str(file)], structlog.get_logger()), Keeper(reason, loads)
    files.first()
    file.write_text("rules: []   # changed")

    async with trio.open_nursery() as nursery:
        await nursery.start(files.watch, keeper)
        with trio.fail_after(60):
            await keeper.enough.wait()
        await trio.sleep(0.3)  # in which a look after each 0.01 s finds nothing new
        nursery.cancel_scope.cancel()

    assert keeper.loads == loads


@pytest.mark.trio
async def test_files_that_rules_name_are_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed tags file reloads its rule. While it is invalid, the old rules stay, and it is polled further."""
    monkeypatch.setattr(rule_files, "INTERVAL", 0.01)
    monkeypatch.setattr(rule_files, "SETTLE", 0.01)
    rules, tags = tmp_path / "a.yaml", tmp_path / "tags.yaml"
    rules.write_text("rules: [{name: m, kind: mask, tags: {PII: null}, tags_file: tags.yaml}]")
    store, came = RuleStore(), trio.Event()
    results: list[bool] = []

    def write(field: str) -> None:
        tags.write_text(f"tags: {{PII: [{{topic: t, fields: [{field}]}}]}}")

    class Loading:
        async def load_everywhere(self, origin: str, operation: Any) -> None:
            try:
                operation(store, 0.0)
                results.append(True)
            except DocumentError:
                results.append(False)
                raise
            finally:
                came.set()

    async def loaded() -> tuple[bool, str]:
        nonlocal came
        with trio.fail_after(60):
            await came.wait()
        came = trio.Event()
        return results[-1], store.rule_set.rules[0].content

    write("value.a")
    files = RuleFiles([str(rules)], structlog.get_logger())
    store.replace_files(files.first(), 0.0)
    first = store.rule_set.rules[0].content
    async with trio.open_nursery() as nursery:
        await nursery.start(files.watch, Loading())
        write("value.other")
        good, second = await loaded()
        assert good and second != first
        tags.write_text("tags: {PII: [{}]}")
        assert await loaded() == (False, second)
        write("value.third")
        good, third = await loaded()
        assert good and third not in (first, second)
        nursery.cancel_scope.cancel()
