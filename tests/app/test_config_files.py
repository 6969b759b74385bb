"""A config's own file that is something else than it should be when it is read again: what is in force stays, the
reason is said, and the next good one is taken."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from kproxy.app.config.changes import Origin
from kproxy.rules.document.read import Document
from kproxy.runtime.rule_files import RuleFiles
from kproxy.testing.process import free_port
from tests.support.live_proxy import LiveProxy

GOOD = """\
clusters: {{main: {{bootstrap: ["127.0.0.1:1"]}}}}
listeners: [{{name: main, bind: "127.0.0.1:{port}", cluster: main, advertise: false}}]
limits: {{max_connections: {limit}}}
rules: [rules]
"""


def half(file: Path) -> None:
    file.write_text(GOOD.format(port=1, limit=70)[:90])


def empty(file: Path) -> None:
    file.touch()


def large(file: Path) -> None:
    with file.open("wb") as made:
        made.truncate(1 << 30)


def device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def circle(file: Path) -> None:
    file.symlink_to(file)


def bytes_of_none(file: Path) -> None:
    file.write_bytes(b"listeners: \xff\xfe")


def missing(file: Path) -> None:
    """Leaves nothing there."""


FILES: list[Callable[[Path], object]] = [
    half, empty, large, device, circle, bytes_of_none, missing, os.mkfifo, os.mkdir,
]  # fmt: skip


def test_a_file_that_is_no_config_leaves_the_one_in_force(tmp_path: Path) -> None:
    """Whatever it is, reading it takes a moment and no more."""
    file, port = tmp_path / "kproxy.yaml", free_port()
    (tmp_path / "rules").mkdir()
    file.write_text(GOOD.format(port=port, limit=50))
    with LiveProxy(file.read_text(), Origin(str(file), file)) as live:

        def reload() -> bool:
            return trio.from_thread.run(live.keeper.reload, trio_token=live.token)

        for rejected, put in enumerate(FILES, 1):
            file.unlink()
            put(file)
            assert not reload()
            assert live.keeper.rejected == rejected, put
            assert live.keeper.config.limits.max_connections == 50
            shutil.rmtree(file) if put is os.mkdir else file.unlink(missing_ok=True)
            file.write_text(GOOD.format(port=port, limit=50))
        file.write_text(GOOD.format(port=port, limit=60))
        assert reload()
        assert live.keeper.config.limits.max_connections == 60


@pytest.mark.parametrize("when", [1, 2])
def test_rule_files_that_go_away_while_they_are_read_are_a_mistake(
    when: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the config, at the place where it names them; the proxy goes on. They are read once to be checked, and once to
    be put in force."""
    file, port, calls = tmp_path / "kproxy.yaml", free_port(), list[object]()
    (tmp_path / "rules").mkdir()
    file.write_text(GOOD.format(port=port, limit=50))

    def gone(self: RuleFiles, paths: list[str], *more: list[str]) -> list[Document]:
        calls.append(paths)
        if len(calls) == when:
            raise FileNotFoundError(2, "No such file or directory", "rules/a")
        return read(self, paths, *more)

    with LiveProxy(file.read_text(), Origin(str(file), file)) as live:
        read = RuleFiles.read
        monkeypatch.setattr(RuleFiles, "read", gone)
        file.write_text(GOOD.format(port=port, limit=60))
        assert not trio.from_thread.run(live.keeper.reload, trio_token=live.token)
        assert (live.keeper.rejected, live.keeper.config.limits.max_connections) == (1, 50)
        assert trio.from_thread.run(live.keeper.reload, trio_token=live.token)
        assert live.keeper.config.limits.max_connections == 60


def test_a_config_nobody_waits_for_any_more_leaves_no_port_behind(tmp_path: Path) -> None:
    """It is given up while rule files are being read, which it waits for; its port can be bound by others."""
    file, port, more = tmp_path / "kproxy.yaml", free_port(), free_port()
    (tmp_path / "rules").mkdir()
    file.write_text(GOOD.format(port=port, limit=50))
    with LiveProxy(file.read_text(), Origin(str(file), file)) as live:
        added = f'{{name: more, bind: "127.0.0.1:{more}", cluster: main, advertise: false}}]\nlimits:'
        file.write_text(file.read_text().replace("]\nlimits:", f", {added}"))
        assert "more" in file.read_text()

        async def give_up() -> list[str]:
            keeper = live.keeper
            async with keeper.files.reading, trio.open_nursery() as nursery:
                nursery.start_soon(keeper.apply)
                with trio.fail_after(60):
                    while not keeper.files.reading.statistics().tasks_waiting:
                        await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            return [one.name for one in (await keeper.apply()).config.listeners]

        assert trio.from_thread.run(give_up, trio_token=live.token) == ["main", "more"]
