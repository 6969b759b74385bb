"""The file of a capture, over the admin API."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from kproxy.admin.captures import CaptureShown, no_such_capture
from kproxy.record.live_view.config import ViewConfig
from tests.admin import conftest as admin

api, logged, make_api = admin.api, admin.logged, admin.make_api  # fixtures


class OneCapture:
    """Captures of a proxy that has made one."""

    def __init__(self, path: Path, **more: Any) -> None:
        self.folder = path.parent
        usual: dict[str, Any] = {
            "name": path.name, "file": str(path), "state": "stopped", "stopped": "asked", "error": None, "filter": "",
            "payload": "full", "side": "both", "since": "", "seconds": 1.0, "exchanges": 1, "broker_exchanges": 0,
            "connections": 1, "size": 9, "dropped": 0, "unknown": 0,
        }  # fmt: skip
        self.shown = CaptureShown(**{**usual, **more})

    async def show(self, name: str) -> CaptureShown:
        if name != self.shown.name:
            raise no_such_capture(name)
        return self.shown


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A capture's file, longer than one piece of it."""
    path = tmp_path / "orders.pcapng"
    path.write_bytes(bytes(range(256)) * 3000)
    return path


@pytest.mark.trio
async def test_a_capture_that_is_over_is_sent(api: Any, path: Path) -> None:
    """Whole, with its name, and as bytes that a browser takes for nothing else."""
    api.backend.captures = OneCapture(path)
    sent = await api("GET", "/api/captures/orders.pcapng/file", receive=trio.sleep_forever)

    assert (sent.status, sent.body) == (200, path.read_bytes())  # noqa: ASYNC240 - a test may wait
    assert sent.headers["content-type"] == "application/octet-stream"
    assert sent.headers["content-disposition"] == "attachment; filename*=UTF-8''orders.pcapng"
    assert sent.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("state", ["running", "ending"])
@pytest.mark.trio
async def test_one_that_runs_is_refused(api: Any, path: Path, state: str) -> None:
    """Its file is not whole."""
    api.backend.captures = OneCapture(path, state=state)
    refused = await api("GET", "/api/captures/orders.pcapng/file")

    assert (refused.status, refused.code) == (409, "capture_runs")
    assert (await api("GET", "/api/captures/other.pcapng/file")).code == "no_such_capture"


@pytest.mark.parametrize("kind", ["gone", "link", "folder", "pipe"])
@pytest.mark.trio
async def test_nothing_else_is_sent_in_its_place(api: Any, path: Path, kind: str) -> None:
    """Whatever stands there by now."""
    api.backend.captures = OneCapture(path)
    path.unlink()  # noqa: ASYNC240
    if kind == "link":
        path.symlink_to("/etc/hostname")  # noqa: ASYNC240
    elif kind == "folder":
        path.mkdir()  # noqa: ASYNC240
    elif kind == "pipe":
        os.mkfifo(path)
    refused = await api("GET", "/api/captures/orders.pcapng/file")

    assert (refused.status, refused.code) == (409, "capture_failed")


@pytest.mark.trio
async def test_records_that_are_hidden_are_in_no_download(api: Any, path: Path) -> None:
    """But for a capture that has none."""
    api.backend.view = ViewConfig(records=False)
    api.backend.captures = OneCapture(path)
    refused = await api("GET", "/api/captures/orders.pcapng/file")
    assert (refused.status, refused.code) == (403, "records_hidden")
    for payload in ("none", "sketch"):
        api.backend.captures = OneCapture(path, payload=payload)
        assert (await api("GET", "/api/captures/orders.pcapng/file", receive=trio.sleep_forever)).status == 200


@pytest.mark.trio
async def test_a_question_about_the_file_leaves_it_closed(api: Any, path: Path) -> None:
    """HEAD has no body, and nobody sends what was opened for it."""
    api.backend.captures = OneCapture(path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert (await api("HEAD", "/api/captures/orders.pcapng/file", kind=None)).status == 200

    assert len(os.listdir("/proc/self/fd")) <= before + 2
