"""`kproxy view --web`: the page and the API for files alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from tests.support.capture_files import client, produce, written

pytestmark = pytest.mark.process
COMMAND = (sys.executable, "-m", "kproxy", "view", "--web")


@pytest.mark.parametrize("end", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.deep)])
def test_files_are_served_on_loopback_until_ctrl_c(tmp_path: Path, end: signal.Signals) -> None:
    """Each is a source, and what needs a proxy is not there."""
    paths = []
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        who = client(7)
        paths.append(str(written(tmp_path / str(number) / f"c{number}.pcapng", [produce(1, who=who)] * number)))
    with subprocess.Popen([*COMMAND, *paths], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        api = url.removesuffix("/view/")

        assert url.startswith("http://127.0.0.1:")
        told = json.load(urllib.request.urlopen(f"{api}/api/sources", timeout=30))
        assert [(one["source"], one["name"], one["ttl_left"]) for one in told["sources"]] == [
            ("s1", "c1.pcapng", None), ("s2", "c2.pcapng", None),
        ]  # fmt: skip
        assert (told["live"], told["may_open"]) == (False, True)
        for path in ("/api/rules", "/api/connections", "/api/captures"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(api + path, timeout=30)
        foreign = urllib.request.Request(f"{api}/api/sources", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(foreign, timeout=30)
        process.send_signal(end)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no such file"), (b"{}", "expected a capture"), (b"", "expected a capture")]
)
def test_what_is_no_capture_is_said(tmp_path: Path, content: bytes | None, message: str) -> None:
    """Before anything is served."""
    path = tmp_path / "x.data"
    if content is not None:
        path.write_bytes(content)
    ran = CliRunner().invoke(main, ["view", "--web", str(path)])

    assert ran.exit_code == 1, ran.stderr
    assert message in ran.stderr
    assert ran.stdout == ""


def test_without_files_it_says_where_to_look() -> None:
    """A running proxy has the page itself."""
    ran = CliRunner().invoke(main, ["view", "--web"])

    assert ran.exit_code == 2
    assert "http://127.0.0.1:9190/view/" in ran.stderr
