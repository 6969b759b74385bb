"""What a look at rule files tells; that changes are found while a proxy runs is tested with whole proxies."""

from __future__ import annotations

import os
from pathlib import Path

from kproxy.net.rule_files import look, read


def test_a_look_tells_versions_of_files_apart(tmp_path: Path) -> None:
    """Content that was written, a file that was renamed over it, a time that was set back."""
    file = tmp_path / "a.yaml"
    file.write_text("rules: []")
    seen = [look([str(tmp_path)])]
    file.write_text("rules: [] ")
    seen.append(look([str(tmp_path)]))
    (tmp_path / ".new").write_text("rules: [] ")
    (tmp_path / ".new").rename(file)
    seen.append(look([str(tmp_path)]))
    os.utime(file, (0, 0))
    seen.append(look([str(tmp_path)]))

    assert len(set(seen)) == 4
    assert look([str(tmp_path)]) == seen[-1]


def test_a_look_goes_through_links(tmp_path: Path) -> None:
    """A folder that a link in the path leads to may be another one than before."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text("rules: []")
    link = tmp_path / "link"
    link.symlink_to("one")
    before = look([str(link)])
    link.unlink()
    link.symlink_to("two")

    assert look([str(link)]) != before
    assert [name for name, _ in before] == [str(link / "a.yaml")]


def test_what_is_missing_is_seen_as_missing(tmp_path: Path) -> None:
    """And reading it is a mistake of its document."""
    path = str(tmp_path / "none.yaml")

    assert look([path]) == ((path, None),)
    assert [document.source.lines() for document in read([path])] == [
        [f"{path}:1:1: the file cannot be read: no such file or directory"]
    ]
