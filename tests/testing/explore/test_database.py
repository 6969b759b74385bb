"""Findings on disk: kept for the next time, whatever happens to the disk."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from kproxy.rules.document.read import read_document
from kproxy.rules.values.source import Source
from kproxy.testing.explore import database
from kproxy.testing.explore.database import MOST_KEPT, FindingStore, KeptFinding, file_stem, save_rules
from kproxy.testing.explore.result import FailureSignature
from tests.testing.explore.made_up import COPY, plan, planned, stable

LOST = plan(planned("Produce", "answer lost", stable(COPY)[1]))


def kept(message: str = "lost N", seen: float = 1.0) -> KeptFinding:
    return KeptFinding(LOST, FailureSignature("failed", "AssertionError", message), seen)


def test_findings_come_back_newest_first(tmp_path: Path) -> None:
    """What is saved is loaded, and the same finding is kept once, as it was seen last."""
    store = FindingStore("tests/test_a.py::test_a", tmp_path)
    assert store.load() == []
    for one in (kept("a", 1), kept("b", 3), kept("c", 2), kept("a", 4)):
        assert store.save(one) == ""
    assert store.load() == [kept("a", 4), kept("b", 3), kept("c", 2)]
    assert FindingStore("tests/test_a.py::test_b", tmp_path).load() == []


def test_at_most_so_many_are_kept(tmp_path: Path) -> None:
    """The oldest go, on the disk, too."""
    store = FindingStore("test", tmp_path)
    for number in range(MOST_KEPT + 5):
        store.save(kept(f"m{number}", number))
    assert [one.seen for one in store.load()] == [float(number) for number in range(MOST_KEPT + 4, 4, -1)]
    assert len(list(store.folder.iterdir())) == MOST_KEPT


def test_what_does_not_fail_any_more_is_forgotten(tmp_path: Path) -> None:
    """Only the finding with that signature goes."""
    store = FindingStore("test", tmp_path)
    store.save(kept("a"))
    store.save(kept("b"))
    store.forget(kept("a").signature)
    store.forget(kept("z").signature)
    assert store.load() == [kept("b")]


def test_a_full_disk_is_told_and_nothing_is_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding that was there stays whole, the reason is returned, and no part of a file is left."""
    store = FindingStore("test", tmp_path)
    store.save(kept(seen=1.0))

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as stream:
            stream.write(data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert "No space left on device" in store.save(kept(seen=2.0))
    with pytest.raises(OSError, match="No space"):
        save_rules(tmp_path / "rules", "test", kept().signature, LOST, ())
    monkeypatch.undo()
    assert store.load() == [kept(seen=1.0)]
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file() and path.name != ".gitignore"] == [".json"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A file in the way of the folder is no reason to lose the result."""
    (tmp_path / "explored").write_text("in the way")
    store = FindingStore("test", tmp_path / "explored")
    assert "cannot be kept" in store.save(kept())
    assert store.load() == []
    store.forget(kept().signature)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"plan": {"steps": [1]}}', b"[" * 100_000])
def test_files_that_are_no_findings_are_passed_over(tmp_path: Path, data: bytes) -> None:
    """A torn file, or one that somebody has put there, is no finding, and harms none."""
    store = FindingStore("test", tmp_path)
    store.save(kept())
    (store.folder / "0.json").write_bytes(data)
    (store.folder / "1.json").mkdir()
    assert store.load() == [kept()]


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is longer than a plan can be is passed over by its length alone."""
    store = FindingStore("test", tmp_path)
    store.save(kept())
    monkeypatch.setattr(database, "LARGEST", 10)
    assert store.load() == []


def test_parts_of_interrupted_writes_go(tmp_path: Path) -> None:
    """What a process had begun to write when it was killed is removed later; what is being written now is not."""
    store = FindingStore("test", tmp_path)
    store.save(kept("a"))
    old, new = store.folder / "x.json.1-a.part", store.folder / "y.json.2-b.part"
    old.write_bytes(b"{")
    os.utime(old, (1, 1))
    new.write_bytes(b"{")
    store.save(kept("b"))
    assert not old.exists()
    assert new.exists()


def test_two_explorations_in_one_folder(tmp_path: Path) -> None:
    """Several write and read at the same time, and each reads whole findings only."""
    problems: list[str] = []

    def work(number: int) -> None:
        store = FindingStore("test", tmp_path)
        for turn in range(20):
            problems.append(store.save(kept(f"m{turn}", number * 100 + turn)))
            problems.extend("torn" for one in store.load() if one.plan != LOST)

    threads = [Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(problems) == {""}
    assert len(FindingStore("test", tmp_path).load()) == 20


def test_git_does_not_see_it(tmp_path: Path) -> None:
    """The folder tells git to leave it alone, once."""
    store = FindingStore("test", tmp_path)
    store.save(kept())
    assert (tmp_path / ".gitignore").read_text() == "*\n"
    (tmp_path / ".gitignore").write_text("mine")
    store.save(kept())
    assert (tmp_path / ".gitignore").read_text() == "mine"


@pytest.mark.parametrize("test", ["../../etc/passwd", "t::" + "x" * 999, "a b/ü[\x1b]", "", "\ud800", ".", "a\0b"])
def test_names_of_tests_are_no_paths(tmp_path: Path, test: str) -> None:
    """A test with any name has a folder of its own below the root."""
    store = FindingStore(test, tmp_path / "root")
    assert store.save(kept()) == ""
    assert store.folder.parent == tmp_path / "root"
    assert store.load() == [kept()]


def test_tests_have_folders_of_their_own() -> None:
    """Two tests of one name in two files do not share a folder."""
    assert file_stem("a.py::test_x") != file_stem("b.py::test_x")
    assert file_stem("a.py::test_x[1]") != file_stem("a.py::test_x(1)")


def test_saved_rules_can_be_loaded(tmp_path: Path) -> None:
    """A rule file has notes, and rules that load."""
    path = save_rules(tmp_path / "rules", "a.py::test_copy[1]", kept().signature, LOST, ["found\nhere", "\x1b[31m"])
    assert re.fullmatch(r"test_copy-1-Produce-1-out-0-of-app-the-answer-is-lost-[0-9a-f]{8}\.yaml", path.name)
    text = path.read_text()
    assert "\x1b" not in text
    assert len(read_document(Source.open(path)).parsed_rules) == 1
    assert read_document(Source("again", text)).parsed_rules[0].raw["when"] == {"nth": 1, "count": "all"}


def test_save_rules_keeps_findings_apart_and_names_stable(tmp_path: Path) -> None:
    """Tests, places, faults and failures with the same readable names, also after cutting, get own files."""
    produce, commit = stable(COPY)[1], stable(COPY)[2]
    long = "x" * 300
    tests = [
        "a/test_a.py::test_copy", "b/test_a.py::test_copy", "a/test_b.py::test_copy", "a/test_a.py::TestX::test_copy",
        *(f"t.py::test_copy[{name}]" for name in ("1", "(1)", "a/b", "a::b", "ä", "ö", "\ud800", "A", "a", "..", "")),
        f"t.py::{long}", f"t.py::{long}y", f"t.py::test[{long}-1]", f"t.py::test[{long}-2]",
    ]  # fmt: skip
    plans = [
        LOST, plan(planned("Produce", "never arrives", produce)), plan(planned("OffsetCommit", "answer lost", commit)),
        plan(planned("Produce", "answer lost", replace(produce, topic=long))),
        plan(planned("Produce", "answer lost", replace(produce, topic=f"{long}y"))),
    ]  # fmt: skip
    failures = [FailureSignature("failed", "AssertionError", f"lost {number}") for number in range(300)]
    findings = [
        *((test, failures[0], one) for test in tests for one in plans),
        *((tests[0], failure, LOST) for failure in failures[1:]),
    ]
    names = [save_rules(tmp_path, *one, ()).name for one in findings]
    assert len({name.lower() for name in names}) == len(findings)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+\.yaml", name) and len(name) <= 150 for name in names)
    assert [save_rules(tmp_path, *one, ()).name for one in findings[:50]] == names[:50]
    assert save_rules(tmp_path, tests[0], failures[0], LOST, (), one_batch_per_fetch=True).name not in names
    assert save_rules(tmp_path, tests[0], failures[0], LOST, ["a note"]).name == names[0]


@pytest.mark.parametrize(("rate", "left"), [((3, 3), [0, 0, 0]), ((3, 10), [1, 1, 0])])
def test_store_intermittent_finding_is_kept_for_some_passes(
    tmp_path: Path, rate: tuple[int, int], left: list[int]
) -> None:
    """A plan that always failed is removed when it passes once, an intermittent one after three explorations."""
    store = FindingStore("test", tmp_path)
    store.save(replace(kept(), rate=rate))
    for count in left:
        for one in store.load():
            store.passed(one)
        assert len(store.load()) == count
