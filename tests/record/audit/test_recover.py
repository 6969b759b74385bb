"""Every state that a kill can leave behind, made by hand: the rows of recover.py's table."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproxy.record.audit.lines import EventEncoder
from tests.record.audit.conftest import Audit
from tests.support.audit_reader import by_source, hidden, published, recovered
from tests.support.wait import until

Make = Callable[..., Audit]
SOURCE = "old/0badcafe-0000-4000-8000-000000000000/3"
STEM = "old-0badcafe-3"
NAME = f"{STEM}-000000000007"


def lines(count: int = 4) -> list[bytes]:
    """Lines 7, 8, … of the dead process."""
    made = EventEncoder(SOURCE)
    made.last_id = 6
    return [made.line("kproxy.test.v1", 1_700_000_000.0, {"number": number}) for number in range(count)]


def leave(folder: Path, files: dict[str, bytes], *, mark: bool = True) -> None:
    """What the dead process has left, by ending of the name."""
    folder.mkdir()
    if mark:
        (folder / f".{STEM}.session").write_text(SOURCE + "\n")
    for ending, content in files.items():
        (folder / f".{NAME}{ending}").write_bytes(content)


def recover(make: Make) -> list[dict[str, Any]]:
    """Start a recorder in the same folder, wait until all is recovered, and end it; the data of what it told."""
    own = make()
    until(lambda: own.counters.unclean_shutdowns >= 1)
    assert own.close()
    assert hidden(own.folder) == []
    return recovered(published(own.folder), "unclean_end")


def numbers(folder: Path) -> list[int]:
    """Of the dead process's events that are published."""
    return [int(event["id"]) for event in by_source(published(folder)).get(SOURCE, [])]


WHOLE = b"".join(lines())
TOLD = {"reason": "unclean_end", "file": f"{NAME}.ndjson.gz", "of_source": SOURCE, "first_id": 7}
FOUR = {**TOLD, "lines": 4, "cut_bytes": 0, "last_id": 10}
THREE = {**TOLD, "lines": 3, "last_id": 9}
STATES = {
    "while a line is written": ({".ndjson.tmp": WHOLE[:-5]}, {**THREE, "cut_bytes": len(lines()[3]) - 5}),
    "after all lines": ({".ndjson.tmp": WHOLE}, FOUR),
    "after a power cut": ({".ndjson.tmp": b"".join(lines()[:3]) + bytes(50) + b"\n" + lines()[3]},
                          {**THREE, "cut_bytes": 51 + len(lines()[3])}),
    "while it is compressed": ({".ndjson.tmp": WHOLE, ".ndjson.gz.tmp": gzip.compress(WHOLE)[:30]}, FOUR),
    "before the source is deleted": ({".ndjson.tmp": WHOLE, ".ndjson.gz": gzip.compress(WHOLE)}, FOUR),
    "before it is published": ({".ndjson.gz": gzip.compress(WHOLE)}, FOUR),
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("mark", [True, False])
def test_a_file_is_published_and_told(audit: Make, tmp_path: Path, state: str, mark: bool) -> None:
    """Whole lines, each once, under the file's own name, with what was cut on record; also if the mark was deleted."""
    files, expected = STATES[state]
    leave(tmp_path / "audit", files, mark=mark)
    (told,) = recover(audit)

    assert told == expected
    assert numbers(tmp_path / "audit") == list(range(7, expected["last_id"] + 1))
    assert [path.name for path in (tmp_path / "audit" / "dt=2023-11-14").iterdir()] == [f"{NAME}.ndjson.gz"]


def test_a_kill_between_two_files(audit: Make, tmp_path: Path) -> None:
    """Without a file it is on record, too: what waited in memory is lost."""
    leave(tmp_path / "audit", {})

    assert recover(audit) == [{"reason": "unclean_end", "of_source": SOURCE, "lines": 0}]


@pytest.mark.parametrize("content", [b"", lines()[0][:-1]])
@pytest.mark.parametrize("mark", [True, False])
def test_a_file_without_a_whole_line(audit: Make, tmp_path: Path, content: bytes, mark: bool) -> None:
    """It is told and deleted, not published; whose it was says the mark, if there is one."""
    leave(tmp_path / "audit", {".ndjson.tmp": content}, mark=mark)
    (told,) = recover(audit)

    expected = {"reason": "unclean_end", "file": f"{NAME}.ndjson.gz", "lines": 0, "cut_bytes": len(content)}
    assert told == (expected | {"of_source": SOURCE} if mark else expected)
    assert numbers(tmp_path / "audit") == []


def test_several_files_of_one_process(audit: Make, tmp_path: Path) -> None:
    """One that waited for its compression, and the one that was open: an event for each."""
    leave(tmp_path / "audit", {".ndjson.tmp": b"".join(lines()[:2])})
    (tmp_path / "audit" / f".{STEM}-000000000009.ndjson.tmp").write_bytes(b"".join(lines()[2:]))

    assert [(data["first_id"], data["lines"]) for data in recover(audit)] == [(7, 2), (9, 2)]
    assert numbers(tmp_path / "audit") == [7, 8, 9, 10]


@pytest.mark.parametrize(
    "files",
    [
        {".ndjson.tmp": b"something else\n"},
        {".ndjson.tmp": b'{"x": ' + b"[" * 100_000 + b"\n"},
        {".ndjson.gz": b"\x1f\x8b, but broken"},
        {".ndjson.gz": b"no gzip"},
    ],
)
def test_what_is_not_ours_is_put_aside(audit: Make, tmp_path: Path, files: dict[str, bytes]) -> None:
    """Never deleted, never published; said on record."""
    leave(tmp_path / "audit", files)
    own = audit()
    until(lambda: own.counters.unclean_shutdowns == 1)
    own.close()
    (told,) = recovered(published(own.folder), "unclean_end")

    assert told["lines"] == 0
    assert told["message"].startswith(f"put aside as .{NAME}.ndjson.bad, its first line is no event: ")
    assert [(own.folder / name).read_bytes() for name in hidden(own.folder)] == list(files.values())


def test_files_of_the_living_are_not_touched(audit: Make) -> None:
    """Two recorders in one folder: neither recovers the other, not even when the other's mark was deleted."""
    one = audit()
    one.put(5)
    until(lambda: one.counters.written == 5)
    (one.folder / f".{one.identity.stem}.session").unlink()
    two = audit()
    two.put(5)
    assert two.close()
    one.put(1)
    assert one.close()

    assert recovered(published(one.folder), "unclean_end") == []
    assert {source: len(own) for source, own in by_source(published(one.folder)).items()} == {
        one.identity.source: 6, two.identity.source: 5,
    }  # fmt: skip


def test_two_that_recover_at_the_same_time(audit: Make, tmp_path: Path) -> None:
    """Workers that start together: one of them does it."""
    leave(tmp_path / "audit", {".ndjson.tmp": WHOLE})
    both = [audit(), audit()]
    until(lambda: sum(own.counters.unclean_shutdowns for own in both) == 1)
    closed = [own.close() for own in both]

    assert closed == [True, True]
    assert recovered(published(tmp_path / "audit"), "unclean_end") == [FOUR]
    assert numbers(tmp_path / "audit") == [7, 8, 9, 10]


def test_a_mark_that_never_got_its_name(audit: Make, tmp_path: Path) -> None:
    """A process killed that early has put nothing: the rest of it is deleted."""
    leave(tmp_path / "audit", {}, mark=False)
    (tmp_path / "audit" / f".{STEM}.session.tmp").write_text(SOURCE)
    own = audit()
    until(lambda: hidden(own.folder) == [f".{own.identity.stem}.session"])
    own.close()

    assert list(own.folder.iterdir()) == []


def test_a_folder_that_cannot_be_read_yet(audit: Make, tmp_path: Path) -> None:
    """Recovery is tried again until it can be. The folder appears with all that is in it, as a mounted one does."""
    folder, file, mounted = tmp_path / "audit", tmp_path / "file", tmp_path / "mounted"
    file.write_text("a file where the folder should be")
    folder.symlink_to(file)
    own = audit()
    until(lambda: own.counters.errors.total() >= 3)
    leave(tmp_path / "left", {".ndjson.tmp": WHOLE})
    mounted.symlink_to(tmp_path / "left")
    mounted.replace(folder)
    until(lambda: own.counters.unclean_shutdowns == 1)
    assert own.close()

    assert recovered(published(folder), "unclean_end") == [FOUR]


def test_killed_while_recovering(audit: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told but not published: the next start tells it again, and publishes it once."""
    leave(tmp_path / "audit", {".ndjson.tmp": WHOLE})
    with monkeypatch.context() as patch:
        patch.setattr("kproxy.record.audit.recover.publish", lambda *_: 1 / 0)
        first = audit()
        until(lambda: first.counters.errors["mistake"] == 1)
        first.close()
    second = audit()
    until(lambda: second.counters.unclean_shutdowns == 2)  # the old process, and the first recorder
    second.close()
    told = recovered(published(second.folder), "unclean_end")

    assert [data for data in told if data["of_source"] == SOURCE] == [FOUR, FOUR]
    assert numbers(tmp_path / "audit") == [7, 8, 9, 10]
